#ifndef RONDA_CLIENT_SESSION_H_
#define RONDA_CLIENT_SESSION_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/runtime.h"

namespace ronda {

// What lives from ronda_init() to ronda_shutdown(): the runtime, and the numbering of the barriers.
//
// Thread-safe.
class Session {
 public:
  // Barriers that may be in flight at once, each in a thread of its own.
  static constexpr uint64_t kConcurrentBarriers = 16;

  explicit Session(std::unique_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  Runtime& runtime() const { return *runtime_; }
  const Topology& topology() const { return runtime_->topology(); }

  // Submits this rank's next barrier: the n-th on one rank meets the n-th on every other.
  // Errors: ALREADY_EXISTS if kConcurrentBarriers are in flight; the job's failure.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitBarrier();

 private:
  const std::unique_ptr<Runtime> runtime_;
  Mutex mu_;
  uint64_t barriers_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_SESSION_H_
