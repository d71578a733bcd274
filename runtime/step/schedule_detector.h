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

// Finds out when a job repeats its steps. It watches the tensors that the coordinator releases. A job repeats its steps
// when the same set of tensors has been released `identical_steps` times in a row and nothing else has happened.
//
// A step ends at the end of the first list with which all tensors of the previous step have been released. If one
// tensor comes twice before that, the step ends before the list with the second release, and the count of identical
// steps starts again. It does not matter where a step begins, because the buckets of a schedule repeat in a circle.
//
// A pure state machine. Thread-compatible.
class ScheduleDetector {
 public:
  // `identical_steps`: the smallest number of identical steps; 0: the detector never finds a schedule.
  explicit ScheduleDetector(int identical_steps) : base_(identical_steps), needed_(identical_steps) {}

  // Tensors that are released after this call may have waited for tensors that earlier lists released.
  void Wait() { ++waits_; }

  // The tensor with this id runs with the next list, on all ranks of the job.
  void Release(CacheId id, absl::Time now);

  // The next list contains something that no schedule may contain. Its releases are ignored, and the count starts
  // again.
  void Break();

  // Ends the list: it contains all releases since the last call.
  void EndList();

  // Whether the last list ended a step, and enough steps have been identical.
  bool complete() const { return base_ > 0 && identical_ >= needed_ && current_.empty(); }

  // The tensors in the order of the last step, as they were observed in the identical steps: the part of a StepTensor
  // that does not come from its request. `batches` covers the last few steps. For each of them, it has the number of
  // the tensor's list and how many waits came before.
  // REQUIRES: complete().
  std::vector<StepTensor> step() const;

  // The schedule was unlocked, after all of its buckets were carried out `rounds` times.
  void Unlocked(uint64_t rounds);

  // The last schedule did not fit the program. Each time this happens, the next schedule needs twice as many identical
  // steps, up to 1,024. The number falls back when a schedule lasts for at least as many rounds as it needed identical
  // steps.
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
