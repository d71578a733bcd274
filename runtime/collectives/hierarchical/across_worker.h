#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_ACROSS_WORKER_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_ACROSS_WORKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/hierarchical/level_ground.h"

namespace ronda {

// Has what the slots of a LevelGround hold reduced across hosts by a thread of its own, one after the other, while its
// owner does something else.
//
// One thread at a time hands over and awaits. While a slot is under way nobody else may use the level across.
class AcrossWorker {
 public:
  // What is to be done with a slot, by the worker's thread. If it throws std::bad_alloc, RESOURCE_EXHAUSTED comes of
  // it.
  using Work = std::function<absl::Status(size_t slot)>;
  explicit AcrossWorker(Work work);

  // Waits for the slot under way, which ends at the latest when the job has failed; later ones are not begun.
  ~AcrossWorker();
  AcrossWorker(const AcrossWorker&) = delete;
  AcrossWorker& operator=(const AcrossWorker&) = delete;

  // Hands a slot over, which stays as it is until it was awaited, or the worker destroyed.
  // REQUIRES: fewer than LevelGround::kSlots are not awaited.
  void Submit(size_t slot);

  // Waits for the oldest slot that was not awaited, and returns what became of it.
  // REQUIRES: there is one.
  absl::Status Await();

 private:
  static constexpr size_t kDepth = LevelGround::kSlots;

  void Run();
  // What becomes of the slot. No exception leaves it: nobody would catch one.
  absl::Status Carry(size_t slot) const;

  const Work work_;
  // Made beforehand: there is no memory for it when it is needed.
  const absl::Status out_of_memory_ =
      absl::ResourceExhaustedError("out of memory in the thread that reduces across hosts");
  const absl::Status exception_ = absl::InternalError("an exception in the thread that reduces across hosts");
  Mutex mu_;
  CondVar changed_;
  std::array<size_t, kDepth> slots_ ABSL_GUARDED_BY(mu_) = {};
  std::array<absl::Status, kDepth> results_ ABSL_GUARDED_BY(mu_);
  uint64_t submitted_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t awaited_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_ACROSS_WORKER_H_
