#ifndef RONDA_CLIENT_HANDLE_TABLE_H_
#define RONDA_CLIENT_HANDLE_TABLE_H_

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "client/operation.h"
#include "client/ronda.h"
#include "runtime/base/mutex.h"

namespace ronda {

// The operations that C callers hold, by number. Numbers are never used twice, so one that was released, or that an
// earlier job gave out, cannot reach another operation's handle.
//
// Thread-safe.
class HandleTable {
 public:
  // Keeps `operation` until Remove.
  ronda_handle Add(std::shared_ptr<const Operation> operation);

  // nullptr if `id` was never given out or has been removed.
  std::shared_ptr<const Operation> Find(ronda_handle id) const;

  // What `id` stood for; nullptr as in Find.
  std::shared_ptr<const Operation> Remove(ronda_handle id);

 private:
  mutable Mutex mu_;
  ronda_handle next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<ronda_handle, std::shared_ptr<const Operation>> operations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_CLIENT_HANDLE_TABLE_H_
