// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_STEP_SCHEDULE_DETECTOR_H_
#define RONDA_RUNTIME_STEP_SCHEDULE_DETECTOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "runtime/step/schedule_planner.h"
#include "runtime/step/step.h"

namespace ronda {

// Finds out when a job repeats its steps, from the tensors that the coordinator releases. A job repeats its steps when
// the same set of tensors has been released `identical_steps` times in a row, and nothing else has happened.
//
// A step ends with the first list after which all tensors of the previous step have been released again. If a tensor is
// released a second time before this list, the step ends before the list with the second release, and the count of
// identical steps starts again. A step may begin with any tensor, because the buckets of a schedule repeat in a circle.
//
// A pure state machine. Thread-compatible.
class ScheduleDetector {
 public:
  // `identical_steps` is how many identical steps in a row make a schedule; 0: there are no schedules.
  explicit ScheduleDetector(int identical_steps) : base_(identical_steps), needed_(identical_steps) {}

  // Records that tensors released from now on may have waited for tensors of earlier lists.
  void Wait() { ++waits_; }

  // Records that the next list releases the tensor with this id, on all ranks of the job.
  void Release(CacheId id, absl::Time now);

  // Records that the next list contains something that no schedule may contain. The detector ignores the releases of
  // that list, and begins to count identical steps again.
  void Break();

  // Ends the list, which contains all releases since the last call.
  void EndList();

  // Returns whether the last list ended a step and enough steps have been identical.
  bool complete() const { return base_ > 0 && identical_ >= needed_ && current_.empty(); }

  // Returns the tensors in the order of the last step. Sets only the StepTensor fields that do not come from the
  // tensors' requests. `batches` covers the last few steps, with two entries for each: the number of the list that
  // released the tensor, and the number of earlier calls of Wait.
  // REQUIRES: complete().
  std::vector<StepTensor> step() const;

  // Records that the schedule was unlocked after `rounds` complete rounds.
  void Unlocked(uint64_t rounds);

  // Records that the last schedule did not fit the program. Each call doubles the number of identical steps that the
  // next schedule needs, up to 1,024. When a schedule that needed n identical steps has lasted for at least n rounds,
  // this number returns to its first value.
  void Distrust();

 private:
  struct Released {
    CacheId id;
    absl::Time time;
    uint64_t list;
    uint64_t waits;
  };
  struct Seen {
    size_t place = 0;      // in the last step
    absl::Duration total;  // sum over the steps: from the first release of the step to the tensor's release
    std::vector<uint64_t> batches;
  };

  void Restart();
  void EndStep();
  void BeginWithThisList();
  bool EqualsLastStep() const;

  const int base_;
  int needed_;
  uint64_t waits_ = 0;
  uint64_t list_ = 0;                        // the number of the next list
  bool broken_ = false;                      // the next list is ignored
  std::vector<Released> current_;            // of the step so far
  absl::flat_hash_set<CacheId> released_;    // the ids in current_
  absl::flat_hash_map<CacheId, Seen> last_;  // of the last step, and of the identical steps before it
  int identical_ = 0;                        // steps that last_ has seen
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_SCHEDULE_DETECTOR_H_
