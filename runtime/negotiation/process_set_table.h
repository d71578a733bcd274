#ifndef RONDA_RUNTIME_NEGOTIATION_PROCESS_SET_TABLE_H_
#define RONDA_RUNTIME_NEGOTIATION_PROCESS_SET_TABLE_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// The process sets of a job. A function of the sequence of responses alone, so that the tables of all ranks are equal
// without being compared: sets get the ids 1, 2, ... as they are added, and no id is used twice.
//
// Thread-compatible. The groups may be kept by anybody, also after their set was removed.
class ProcessSetTable {
 public:
  explicit ProcessSetTable(int world_size);

  // The members of a set; nullptr if there is none of this id (any more).
  std::shared_ptr<const Group> Find(ProcessSetId id) const { return id < sets_.size() ? sets_[id] : nullptr; }

  // Whether there ever was a set of this id.
  bool Known(ProcessSetId id) const { return id < sets_.size(); }

  // The id of the next set.
  ProcessSetId next_id() const { return static_cast<ProcessSetId>(sets_.size()); }

  // Takes note of a response, if it is one that adds or removes a set.
  // Errors: INVALID_ARGUMENT if it does not continue the sequence: another id than the next one, members that are no
  // ranks of the job, a removal of what is not there.
  absl::Status Apply(const Response& response);

 private:
  absl::Status Add(const TensorRequest& request);
  absl::Status Remove(ProcessSetId id);

  std::vector<std::shared_ptr<const Group>> sets_;  // by id; nullptr: removed
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_PROCESS_SET_TABLE_H_
