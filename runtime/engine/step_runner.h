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
#include "absl/types/span.h"
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

// Runs a rank's locked schedule (runtime/step/step.h). It gives the rank's submissions to the LockedSchedule, which
// decides which bucket is next and when to veto. It lets the executor carry out the next bucket with this rank's vote,
// and tells the other ranks when this rank requests to unlock. It remembers the tensors of each bucket, and lets flags
// (runtime/step/flags.h) travel with the votes.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class StepRunner {
 public:
  // None is owned.
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
  // Vetoes the next bucket of the schedule, if one is locked.
  void VetoNext() { schedule_.VetoNext(); }

  // Whether the schedule that was locked last did not fit this rank's program.
  bool did_not_fit() const { return schedule_.has_timed_out(); }

  // Whether RunNext has something to do.
  bool ready() const { return locked() && schedule_.Next().has_value(); }

  // A rank has requested to unlock this schedule and all earlier ones. Returns whether one of them is locked here.
  bool RecordUnlockRequest(uint64_t schedule);

  // If the tensor is one of the locked schedule, known from an earlier round, submits it to the schedule. Otherwise
  // returns false, and nothing has happened.
  bool SubmitAgain(const TensorEntry& entry) { return schedule_.SubmitAgain(entry.step_place, entry.version); }

  // If the tensor is a flag, it travels with the next votes. Otherwise returns false, and nothing has happened.
  // REQUIRES: locked().
  bool SubmitFlag(const TensorEntry& entry);

  // How many flags are in flight; 0 if no schedule is locked.
  size_t flags() const;

  // Submits a tensor to the schedule; `id` is the id of its request in the response cache, if it has one.
  // REQUIRES: locked().
  void Submit(TensorEntry& entry, std::optional<CacheId> id);

  // Vetoes the next bucket if submissions have waited too long because no bucket is ready.
  // REQUIRES: locked().
  void CheckWaits(absl::Time now);

  // Carries out, or votes on, the next bucket. Returns the result of the vote; nullopt if this rank lacks tensors of
  // the bucket. After a veto the schedule is unlocked: the caller submits everything in flight to the negotiation
  // again. REQUIRES: locked(). Errors: the executor's errors.
  absl::StatusOr<std::optional<Ballot::Result>> RunNext(absl::Time now);

  // When to call RunNext again even if nothing has been submitted.
  // REQUIRES: locked().
  absl::Time NextDeadline() const { return schedule_.next_look(); }

 private:
  // Lets the ranks vote on the bucket and carry it out.
  absl::StatusOr<Executor::Decision> Execute(size_t bucket);
  Flags OwnFlags() const;
  // Completes the flags that have travelled with the votes of all ranks.
  void CompleteFlags(const Flags& flags);
  void RecordCarriedOut(uint64_t rounds_before, absl::Time now);
  void RequestUnlock();
  void Unlock(absl::Time now);

  const Parts parts_;
  LockedSchedule schedule_;
  std::vector<AgreedBucket> buckets_;  // of that schedule
  // By bucket and index in the bucket: the tensor that was last submitted there, in this schedule or an earlier one.
  // The tensors of a bucket that may be entered are in flight.
  std::vector<std::vector<const TensorEntry*>> entries_;
  std::array<const TensorEntry*, kFlagCount> flags_ = {};  // nullptr: not in flight
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_STEP_RUNNER_H_
