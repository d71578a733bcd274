#ifndef RONDA_RUNTIME_ENGINE_HANDLE_H_
#define RONDA_RUNTIME_ENGINE_HANDLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/callback_thread.h"

namespace ronda {

// What an operation leaves with its handle.
struct OperationResult {
  // allgather, gather (on the root), scatter, reducescatter, alltoall: the rows that this rank receives.
  std::unique_ptr<std::byte[]> data;
  // allgather, gather (on the root), alltoall: how many rows each member of the process set has sent; scatter,
  // reducescatter: one entry, the number of rows received.
  std::vector<int64_t> first_dims;
  // join: the last rank to join; add_process_set: the set's id; allgather, gather: how many ranks an average counts.
  int64_t number = 0;
  // Whether the result, on any rank, has an element that is infinite or NaN. If detection was asked for.
  enum class Overflow : uint8_t { kNone, kFound } overflow = Overflow::kNone;
};

// The future of one submission. Completed exactly once by the coordinator thread, waited for by any number of threads.
//
// Thread-safe.
class Handle {
 public:
  // `callbacks` runs what OnCompletion gets.
  explicit Handle(std::shared_ptr<CallbackThread> callbacks) : callback_thread_(std::move(callbacks)) {}

  bool done() const;

  // Blocks until the operation has completed; its status. An error status names the tensor.
  absl::Status Wait() const;

  // REQUIRES: Wait() has returned OK.
  const OperationResult& result() const;

  // `callback` is called once, with the operation's status, after the operation has completed; soon, if it has already.
  // It runs on the runtime's callback thread, after the callbacks of what has completed before. It may submit tensors
  // and wait for other handles. If it throws, the job fails: "callback of tensor 'x' threw: ...". Once the runtime is
  // gone it is called in the calling thread.
  // Errors: RESOURCE_EXHAUSTED if the system has no thread to give; `callback` will not be called.
  absl::Status OnCompletion(std::function<void(const absl::Status&)> callback);

  // Coordinator thread only: the operation on `tensor` has ended. The second call is a bug.
  void Complete(std::string tensor, absl::Status status);
  void Complete(std::string tensor, OperationResult result);

 private:
  const std::shared_ptr<CallbackThread> callback_thread_;
  mutable Mutex mu_;
  mutable CondVar completed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::string tensor_ ABSL_GUARDED_BY(mu_);  // known once it is done
  std::list<CallbackThread::Callback> callbacks_ ABSL_GUARDED_BY(mu_);
  OperationResult result_;  // written before done_ is set, read after
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_HANDLE_H_
