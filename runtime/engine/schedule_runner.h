#ifndef RONDA_RUNTIME_ENGINE_SCHEDULE_RUNNER_H_
#define RONDA_RUNTIME_ENGINE_SCHEDULE_RUNNER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/control/control_plane.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/statistics.h"
#include "runtime/schedule/locked_schedule.h"

namespace ronda {

// Carries out a rank's locked schedule: has the executor carry out the bucket that is next, with this rank's vote,
// tells the other ranks when this one calls the schedule off, and keeps the tensors of each bucket at hand.
// LockedSchedule says which bucket is next, and when to unlock.
//
// Votes on tensors in the memory of devices are open for a while, in which this rank goes on. It never sleeps for them:
// the watch of the device rings the bell. A bucket whose tensors may be behind one that is undecided (UndecidedBuckets)
// is not entered before that is known.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class ScheduleRunner {
 public:
  // None is owned.
  struct Parts {
    ControlPlane* control;
    const ProgressEngine* progress;
    const TensorQueue* queue;
    Executor* executor;
    CoordinatorRole* role;  // nullptr but on the coordinator
    TensorLog* log;
    Counters* counters;
  };

  explicit ScheduleRunner(const Parts& parts) : parts_(parts) {}

  void Begin(ResolvedSchedule resolved, absl::Time now) { schedule_.Begin(std::move(resolved), now); }
  bool locked() const { return schedule_.locked(); }
  // If a schedule is locked, it is to be unlocked.
  void RequestUnlock() { schedule_.RequestUnlock(); }

  // Whether the schedule that was locked last did not fit this rank's program.
  bool is_misfit() const { return schedule_.has_lost_patience(); }

  // Whether RunNext has something to do.
  bool ready() const {
    return locked() && (IsOpenOver() || schedule_.HasToUnlock() || Next() != nullptr || IsStuckBehindVeto());
  }

  // Has the device asked often while something here waits for a vote.
  void NoteDemand();

  // Takes note of Inbox::called_off. Whether the locked schedule is to be unlocked for it.
  bool NoteCallOff(uint64_t schedule);

  // If this is a tensor of the locked schedule, known from an earlier round, the schedule takes note of it. False:
  // nothing has happened.
  bool SubmitAgain(const TensorEntry& entry);

  // A tensor is submitted to the schedule; `id` is that of its request in the response cache, if it is there.
  // REQUIRES: locked().
  void Submit(TensorEntry& entry, std::optional<CacheId> id);

  // Wants to unlock if submissions have waited for too long without a bucket being ready.
  // REQUIRES: locked().
  void CheckPatience(absl::Time now);

  // Carries out, or votes on, the next bucket; or takes note of the outcome of those before. kNotReady: there was
  // nothing to do. kUnlocked: the schedule is not locked any more; the caller submits all that is in flight to the
  // negotiation once more.
  // REQUIRES: locked().
  // Errors: the executor's.
  enum class Outcome { kNotReady, kCarriedOut, kUnlocked };
  absl::StatusOr<Outcome> RunNext(absl::Time now);

  // When to call RunNext again though nothing has been submitted.
  // REQUIRES: locked().
  absl::Time NextDeadline() const { return std::min(schedule_.next_look(), OpenDeadline()); }

 private:
  // The next bucket, if it may be entered now.
  const AgreedBucket* Next() const;
  bool MayGive(const AgreedBucket& bucket) const;
  // Whether the next bucket is behind one whose vote was lost in an earlier schedule. The tensors of that may be later
  // in this one: the negotiation has to carry them out.
  bool IsStuckBehindVeto() const;
  // REQUIRES: all tensors of the next bucket, `bucket`, have been submitted here.
  absl::Span<const TensorEntry* const> EntriesOfNext(const AgreedBucket& bucket) const;

  absl::StatusOr<Executor::Voted> Execute(const AgreedBucket& bucket);
  absl::StatusOr<Outcome> Enter(const AgreedBucket& bucket, absl::Time now);
  void NoteCarriedOut(uint64_t rounds_before, absl::Time now);

  // Takes note of the votes that are known by now.
  absl::Status SettleOpen(absl::Time now);
  // Whether the first open vote is known.
  bool IsOpenOver() const;
  // When the first open vote is late.
  absl::Time OpenDeadline() const;

  void CallOff();
  Outcome Unlock(absl::Time now);

  const Parts parts_;
  LockedSchedule schedule_;
  // By position: the tensor that was submitted last for it, in this schedule or an earlier one. The tensors of a bucket
  // that may be entered are in flight.
  std::vector<std::vector<const TensorEntry*>> entries_;
  std::deque<Executor::OpenBucket> open_;  // in the order in which they were entered
  bool demands_ = false;                   // that the device be asked often
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SCHEDULE_RUNNER_H_
