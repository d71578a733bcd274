#ifndef RONDA_RUNTIME_ENGINE_SCHEDULE_RUNNER_H_
#define RONDA_RUNTIME_ENGINE_SCHEDULE_RUNNER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/control/control_plane.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/engine_driver.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/statistics.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/engine/vote_window.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// Carries out the locked schedule on one rank: enters buckets as their tensors are submitted, votes, and leaves when
// any rank wants to (schedule_lock.h).
//
// A rank that wants to leave calls the schedule off before it votes: ranks that sleep wake up and vote too. Besides
// what the lock itself finds, these are reasons to leave: another rank has called the schedule off; the others have
// waited in a bucket for longer than the warning time; this rank shuts down; on rank 0, autotune wants other settings;
// or submissions have waited here for long without any bucket being ready. The last is for programs that have changed
// their ways: if one now waits for each tensor before it submits the next, a bucket with both never becomes ready, and
// the negotiation runs each as it comes. And so for threads that have taken to different paces: in a schedule the fast
// one would wait for the slow one in every round.
//
// Votes on tensors in the memory of devices are open for a while, in which this rank goes on (vote_window.h). It never
// sleeps for them: the watch of the device rings the bell.
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h).
class ScheduleRunner {
 public:
  // The size of the window, of all ranks of a job.
  static constexpr uint64_t kOpenVotes = 8;

  // None is owned.
  struct Parts {
    ControlPlane* control;
    const EngineDriver* driver;
    const TensorQueue* queue;
    Executor* executor;
    Reporter* reporter;
    CoordinatorRole* role;  // nullptr but on rank 0
    TensorLog* log;
    Counters* counters;
  };

  explicit ScheduleRunner(const Parts& parts) : parts_(parts) {}

  bool locked() const { return parts_.reporter->lock() != nullptr; }

  // Whether RunNext has something to do.
  bool ready() const {
    return locked() &&
           (IsOpenOver() || window_.HasToLeave() || (window_.MayEnter() && parts_.reporter->lock()->Next() != nullptr));
  }

  // Takes note of Inbox::called_off. Whether the locked schedule is to be left for it.
  bool CalledOff(uint64_t schedule);

  // If a schedule is locked, it is to be left.
  void Leave();

  // If this is a tensor of the locked schedule, known from an earlier round, the lock takes note of it. False: nothing
  // has happened; the reporter is to be asked.
  bool SubmitAgain(const TensorEntry& entry);

  // The reporter has submitted `entry` to the lock, at this place.
  // REQUIRES: locked().
  void Remember(const TensorEntry& entry, ScheduleLock::Place place);

  // Wants to leave if submissions have waited for too long without a bucket being ready.
  // REQUIRES: locked().
  void CheckPatience(absl::Time now);

  // Carries out, or votes on, the next bucket; or takes note of what has become of those before.
  // REQUIRES: locked(). kLeft: not any more; the caller submits whatever is in flight to the reporter once more. kSoon:
  // a thread waits for a vote that is likely to be known at the next call.
  // Errors: the executor's.
  enum class Outcome { kNotReady, kSoon, kCarriedOut, kLeft };
  absl::StatusOr<Outcome> RunNext(absl::Time now);

  // When to call RunNext again though nothing has been submitted.
  // REQUIRES: locked().
  absl::Time NextDeadline() const;

 private:
  // A bucket that this rank has entered, and whose votes are open.
  struct Open {
    Executor::OpenBucket bucket;
    Ballot::Vote own = Ballot::Vote::kApprove;
    bool ends_round = false;
    absl::Time since;
  };

  void BeginIfNew(absl::Time now);
  absl::StatusOr<Ballot::Result> Execute(const AgreedBucket& bucket);
  absl::StatusOr<Outcome> Enter(const AgreedBucket& bucket, absl::Time now);
  void NoteCarriedOut(bool ends_round, absl::Time now);

  // Takes note of the votes that are known by now.
  absl::Status SettleOpen(absl::Time now);
  // Whether the first open vote is known.
  bool IsOpenOver() const;
  // A vote was lost, in which this rank's `own` was.
  void NoteVeto(Ballot::Vote own);
  // Whether to ask again, rather than sleep until the watch of the device rings.
  bool IsLikelySoon();
  // When the first open vote is late.
  absl::Time OpenDeadline() const;

  void EndRound(absl::Time now);
  // Whether this is known to be stuck, not for too long yet, and nobody waits.
  bool WaitsOn(absl::Time now) const;
  // Whether threads of this program mostly wait for each other's tensors.
  bool HoldsUp(absl::Time now) const;
  void CallOff(uint64_t schedule);
  void LeaveNow(absl::Time now);

  const Parts parts_;
  // What was submitted last at each place of the schedule, and of earlier ones. Those of a bucket that may be entered
  // are in flight.
  std::vector<std::vector<const TensorEntry*>> entries_;
  uint64_t called_off_ = 0;  // the highest schedule that has been, as far as this rank knows
  // Of the schedule that is locked: its number, when it began, and how long threads have waited in it for buckets that
  // lacked a tensor.
  uint64_t number_ = 0;
  absl::Time began_;
  absl::Duration awaited_;
  // Since when no bucket is ready though something is in flight; and a thread waits besides.
  absl::Time stuck_since_ = absl::InfiniteFuture();
  absl::Time awaited_since_ = absl::InfiniteFuture();
  // Of the schedule that is locked.
  VoteWindow window_{kOpenVotes};
  std::deque<Open> open_;                        // in the order in which they were entered
  uint64_t rounds_ = 0;                          // carried out
  Ballot::Vote own_vote_ = Ballot::Vote::kApprove;  // in the first vote that was lost
  uint64_t asked_at_ = 0;                        // how many buckets were settled when a vote was asked for last
  int asked_ = 0;                                // and how often that was
  uint64_t settled_ = 0;
  // When to look at stuck_since_ again. Not sooner because something is stuck no more: a deadline that moves with every
  // bucket would wake the coordinator thread every time.
  absl::Time next_look_ = absl::InfiniteFuture();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_SCHEDULE_RUNNER_H_
