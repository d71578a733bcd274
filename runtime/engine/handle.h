#ifndef RONDA_RUNTIME_ENGINE_HANDLE_H_
#define RONDA_RUNTIME_ENGINE_HANDLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/base/mutex.h"

namespace ronda {

// What an operation leaves with its handle.
struct OperationResult {
  // allgather, gather (on the root), scatter, reducescatter, alltoall: the rows that this rank receives.
  std::unique_ptr<std::byte[]> data;
  // allgather, gather, alltoall: how many rows each member of the process set has sent; scatter, reducescatter: one
  // entry, the number of rows received.
  std::vector<int64_t> first_dims;
  int64_t number = 0;  // join: the last rank to join; add_process_set: the set's id
  // Whether the result, on any rank, has an element that is infinite or NaN. If detection was asked for.
  enum class Overflow : uint8_t { kNone, kFound } overflow = Overflow::kNone;
};

// The future of one submission. Completed exactly once by the coordinator thread, waited for by any number of threads.
//
// Thread-safe.
class Handle {
 public:
  bool done() const;

  // Blocks until the operation has completed; its status. An error status names the tensor.
  absl::Status Wait() const;

  // REQUIRES: Wait() has returned OK.
  const OperationResult& result() const;

  // Coordinator thread only: the operation has ended. The second call is a bug.
  void Complete(absl::Status status);
  void Complete(OperationResult result);

 private:
  mutable Mutex mu_;
  mutable CondVar completed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  OperationResult result_;  // written before done_ is set, read after
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_HANDLE_H_
