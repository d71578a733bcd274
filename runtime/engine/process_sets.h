#ifndef RONDA_RUNTIME_ENGINE_PROCESS_SETS_H_
#define RONDA_RUNTIME_ENGINE_PROCESS_SETS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/process_set_table.h"

namespace ronda {

// The process sets as far as this rank has carried out what was agreed on: what trainer threads see.
//
// Thread-safe.
class ProcessSets {
 public:
  explicit ProcessSets(int world_size) : table_(world_size), global_(table_.Find(kGlobalProcessSet)) {}

  // Errors: INVALID_ARGUMENT that tells a set that was removed from one that never was.
  absl::StatusOr<std::shared_ptr<const Group>> Find(ProcessSetId id) const;

  // All ranks: set 0, which is always there.
  const Group& global() const { return *global_; }

  // Of the sets that there are, ascending.
  std::vector<ProcessSetId> Ids() const;

  // Takes note of a response that adds or removes a set. Only the thread that has the turn (engine_driver.h).
  absl::Status Apply(const Response& response);

 private:
  mutable Mutex mu_;
  ProcessSetTable table_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<const Group> global_;  // which is never removed
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_PROCESS_SETS_H_
