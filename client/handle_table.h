#ifndef RONDA_CLIENT_HANDLE_TABLE_H_
#define RONDA_CLIENT_HANDLE_TABLE_H_

#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "client/ronda.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/engine/handle.h"

namespace ronda {

// An operation that a C caller holds a handle of.
struct HeldOperation {
  std::shared_ptr<Handle> handle;
  OpType op = OpType::kAllreduce;
};

// The handles that C callers hold, by number. Numbers are never used twice, so one that was released, or that an
// earlier job gave out, cannot reach another operation's handle.
//
// Thread-safe.
class HandleTable {
 public:
  // Keeps `operation` until Remove.
  ronda_handle Add(HeldOperation operation);

  // nullopt if `id` was never given out or has been removed.
  std::optional<HeldOperation> Find(ronda_handle id) const;

  // What `id` stood for; nullopt as in Find.
  std::optional<HeldOperation> Remove(ronda_handle id);

 private:
  mutable Mutex mu_;
  ronda_handle next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<ronda_handle, HeldOperation> operations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_CLIENT_HANDLE_TABLE_H_
