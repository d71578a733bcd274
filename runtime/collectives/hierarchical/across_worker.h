#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_ACROSS_WORKER_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_ACROSS_WORKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// Carries out reductions on a thread of its own, one after the other, while its owner does something else.
//
// One thread at a time hands over and awaits. While a call is under way nobody else may use the communicator.
class AcrossWorker {
 public:
  // Calls that may be handed over and not awaited.
  static constexpr size_t kDepth = 2;

  // `across` must outlive the worker.
  explicit AcrossWorker(Communicator& across);

  // Waits for the call under way, which ends at the latest when the job has failed; later ones are not begun.
  ~AcrossWorker();
  AcrossWorker(const AcrossWorker&) = delete;
  AcrossWorker& operator=(const AcrossWorker&) = delete;

  // Hands `call` over. It and what it points to must stay as they are until it was awaited, or the worker destroyed.
  // REQUIRES: fewer than kDepth are not awaited.
  void Submit(const ReduceCall& call);

  // Waits for the oldest call that was not awaited, and returns its status.
  // REQUIRES: there is one.
  absl::Status Await();

 private:
  void Run();

  Communicator& across_;
  Mutex mu_;
  CondVar changed_;
  std::array<const ReduceCall*, kDepth> calls_ ABSL_GUARDED_BY(mu_) = {};
  std::array<absl::Status, kDepth> results_ ABSL_GUARDED_BY(mu_);
  uint64_t submitted_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t awaited_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_ACROSS_WORKER_H_
