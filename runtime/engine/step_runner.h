// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_STEP_RUNNER_H_
#define RONDA_RUNTIME_ENGINE_STEP_RUNNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/control/control_plane.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/statistics.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/reporter.h"
#include "runtime/step/flags.h"
#include "runtime/step/locked_schedule.h"
#include "runtime/step/vote.h"

namespace ronda {

// Runs a rank's locked schedule (runtime/step/step.h). StepRunner passes the rank's submissions to the LockedSchedule,
// which decides which bucket is next, and when this rank vetoes. StepRunner makes the executor carry out the next
// bucket with this rank's vote. If this rank wants to unlock the schedule, StepRunner notifies the other ranks.
// StepRunner also remembers the tensors of each bucket, and sends flags (runtime/step/flags.h) with the votes.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class StepRunner {
 public:
  // StepRunner owns none of these objects.
  struct Parts {
    ControlPlane* control;
    const ProgressEngine* progress;
    TensorQueue* queue;
    Executor* executor;
    CoordinatorRole* role;  // nullptr except on the coordinator
    TensorLog* log;
    Counters* counters;
  };

  explicit StepRunner(const Parts& parts) : parts_(parts) {}

  void Begin(ResolvedSchedule resolved, absl::Time now);
  bool locked() const { return schedule_.locked(); }
  // Vetoes the next bucket, if a schedule is locked.
  void VetoNext() { schedule_.VetoNext(); }

  // Returns true if the last schedule did not fit this rank's program.
  bool did_not_fit() const { return schedule_.has_timed_out(); }

  // Returns whether RunNext can vote on a bucket now.
  bool ready() const { return locked() && schedule_.Next().has_value(); }

  // Must be called when a rank has requested to unlock `schedule` and all earlier schedules. Returns whether one of
  // these schedules is locked on this rank.
  bool RecordUnlockRequest(uint64_t schedule);

  // If the tensor is in the locked schedule and known from an earlier round, submits it to the schedule and returns
  // true. Otherwise does nothing and returns false.
  bool SubmitAgain(const TensorEntry& entry) { return schedule_.SubmitAgain(entry.step_place, entry.version); }

  // If the tensor is a flag, adds it to this rank's next votes and returns true. Otherwise does nothing and returns
  // false. REQUIRES: locked().
  bool SubmitFlag(const TensorEntry& entry);

  // Returns how many flags are in flight. Returns 0 if no schedule is locked.
  size_t flags() const;

  // Submits a tensor to the schedule. `id` is the id of its request in the response cache, if there is one.
  // REQUIRES: locked().
  void Submit(TensorEntry& entry, std::optional<CacheId> id);

  // Vetoes the next bucket if submissions have waited too long for a bucket to become ready.
  // REQUIRES: locked().
  void CheckWaits(absl::Time now);

  // Votes on the next bucket, and carries it out if all ranks approve. Returns the result of the vote, or nullopt if
  // this rank lacks tensors of the bucket. After a veto the schedule is unlocked, and the caller must submit all
  // tensors in flight to the negotiation again. REQUIRES: locked(). Errors: the executor's errors.
  absl::StatusOr<std::optional<Ballot::Result>> RunNext(absl::Time now);

  // Returns when RunNext must be called next, at the latest, even if nothing is submitted.
  // REQUIRES: locked().
  absl::Time NextDeadline() const { return schedule_.next_look(); }

 private:
  // Lets the ranks vote on the bucket, and carries it out if all of them approve.
  absl::StatusOr<Executor::Decision> Execute(size_t bucket);
  Flags OwnFlags() const;
  // Completes the flags that all ranks have sent with their votes.
  void CompleteFlags(const Flags& flags);
  void RecordCarriedOut(uint64_t rounds_before, absl::Time now);
  void RequestUnlock();
  void Unlock(absl::Time now);

  const Parts parts_;
  LockedSchedule schedule_;
  std::vector<AgreedBucket> buckets_;  // of that schedule
  // For each bucket and each index in it, the tensor that was last submitted at this index, in this schedule or in an
  // earlier one. If this rank may approve a bucket, all tensors of the bucket are in flight.
  std::vector<std::vector<const TensorEntry*>> entries_;
  std::array<const TensorEntry*, kFlagCount> flags_ = {};  // nullptr: not in flight
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_STEP_RUNNER_H_
