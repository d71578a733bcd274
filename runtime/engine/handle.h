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

// The result of an allgather.
struct GatheredTensor {
  std::unique_ptr<std::byte[]> data;
  std::vector<int64_t> first_dims;  // of each rank, in rank order
};

// The future of one submission. Completed exactly once by the coordinator thread, waited for by any number of threads.
//
// Thread-safe.
class Handle {
 public:
  bool done() const;

  // Blocks until the operation has completed; its status. An error status names the tensor.
  absl::Status Wait() const;

  // REQUIRES: Wait() has returned OK, and this was an allgather.
  const GatheredTensor& gathered() const;

  // Coordinator thread only: the operation has ended. The second call is a bug.
  void Complete(absl::Status status);
  void CompleteGather(GatheredTensor gathered);

 private:
  mutable Mutex mu_;
  mutable CondVar completed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  GatheredTensor gathered_;  // written before done_ is set, read after
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_HANDLE_H_
