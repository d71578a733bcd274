// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_STEP_STEP_OBSERVER_H_
#define RONDA_RUNTIME_STEP_STEP_OBSERVER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "runtime/step/schedule_detector.h"
#include "runtime/step/schedule_memory.h"
#include "runtime/step/schedule_planner.h"
#include "runtime/step/step.h"

namespace ronda {

// Observes the steps of a job, and tells the coordinator's Negotiator when to lock which schedule (step.h).
//
// If the job returns to an earlier schedule (ScheduleMemory), this schedule is locked. If a new step repeats
// (ScheduleDetector), its buckets are planned (SchedulePlanner) and locked.
//
// A pure state machine. Thread-compatible.
class StepObserver {
 public:
  // How the tensors of a step share buckets.
  using Planning = SchedulePlanner::Options;

  struct Options {
    int identical_steps = 0;  // a schedule begins after this many; 0: no schedules
    Planning planning;
  };

  explicit StepObserver(const Options& options);

  // Return how many schedules have begun, and whether the last of them is still locked.
  uint64_t schedules() const { return schedules_; }
  bool locked() const { return locked_; }

  // --- Events between two lists. A list names the tensors that run next on all ranks.

  // Records that tensors released from now on may have waited for tensors of earlier lists.
  void Wait() { detector_.Wait(); }

  // Records that the last schedule did not fit the program of a rank. Only the first report about a schedule has an
  // effect.
  void Distrust();

  // Records that the next list releases the tensor with this id, on all ranks of the job.
  void Release(CacheId id, absl::Time now);
  // Records that the next list runs a tensor that no schedule may contain.
  void ReleaseOther();
  // Records that the next list contains something that no schedule may contain and that runs no tensor, such as an
  // error.
  void Break() { detector_.Break(); }

  // Records that the id is no longer valid.
  void Forget(CacheId id) { memory_.Forget(id); }

  // --- The end of a list.

  // Fills in the StepTensor fields that come from the tensors' requests.
  using Describe = absl::FunctionRef<void(std::vector<StepTensor>&)>;

  // Ends the list, which contains all releases since the last call. Returns the buckets that may be locked with this
  // list, or nullptr. The pointer is valid until the next call of another function.
  const StepBuckets* EndList(Describe describe);

  // Locks the buckets that EndList returned.
  Schedule Lock(const StepBuckets& buckets);

  // Records that the ranks have unlocked the schedule. `progress` says how far the ranks have carried it out.
  // REQUIRES: locked().
  void Unlock(const ScheduleProgress& progress);

  // Plans schedules with `planning` from now on, and forgets all earlier schedules.
  void SetPlanning(const Planning& planning);

 private:
  ScheduleDetector detector_;
  ScheduleMemory memory_;
  Planning planning_;
  StepBuckets planned_;  // by the last EndList
  uint64_t schedules_ = 0;
  bool locked_ = false;
  bool distrusted_ = false;  // the last schedule
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_STEP_OBSERVER_H_
