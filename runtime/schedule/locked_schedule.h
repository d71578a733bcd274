#ifndef RONDA_RUNTIME_SCHEDULE_LOCKED_SCHEDULE_H_
#define RONDA_RUNTIME_SCHEDULE_LOCKED_SCHEDULE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"
#include "runtime/schedule/schedule_planner.h"

namespace ronda {

// How far a rank may go in a locked schedule while votes are open: those on tensors in the memory of devices are
// counted there, and are known when the device has come to the bucket.
//
// The ranks stay together because each knows the outcome of bucket n before it enters bucket n + `size`, counted from
// the beginning of the schedule. So after a veto of n all ranks have entered all buckets up to n + size - 1, and
// unlock there. Those after n are vetoed as well, by the rank that has vetoed n and wants to unlock ever since. If one
// of them is a bucket whose vote is known at once, all unlock there, which is the same position for all, too. Before it
// unlocks a rank awaits the votes that are still open.
//
// A value. Thread-compatible.
class VoteWindow {
 public:
  enum class Outcome : uint8_t { kCarriedOut, kVetoed };

  // REQUIRES: size > 0.
  explicit VoteWindow(uint64_t size) : size_(size) {}

  // Whether this rank may enter another bucket.
  bool MayEnter() const {
    if (last_ && entered_ >= *last_) return false;
    return open_.empty() || entered_ + 1 < open_.front() + size_;
  }

  // This rank has entered the next bucket, whose vote is known at once, or is open.
  // REQUIRES: MayEnter().
  void Enter(Outcome outcome) {
    ++entered_;
    if (outcome == Outcome::kVetoed) EndAt(entered_);
  }
  void EnterOpen() { open_.push_back(++entered_); }

  // The first open vote has ended.
  // REQUIRES: has_open().
  void Settle(Outcome outcome) {
    if (outcome == Outcome::kVetoed) EndAt(open_.front() + size_ - 1);
    open_.pop_front();
  }

  bool has_open() const { return !open_.empty(); }
  uint64_t entered() const { return entered_; }  // buckets, so far

  // Whether a vote has been lost: from now on this rank wants to unlock.
  bool is_lost() const { return last_.has_value(); }

  // Whether all ranks enter no bucket after the last one that this rank has entered, and this one knows the outcome of
  // all of them.
  bool HasToUnlock() const { return last_ && entered_ >= *last_ && open_.empty(); }

  friend auto operator<=>(const VoteWindow&, const VoteWindow&) = default;

 private:
  void EndAt(uint64_t last) { last_ = std::min(last, last_.value_or(last)); }

  uint64_t size_;
  uint64_t entered_ = 0;
  std::deque<uint64_t> open_;     // the numbers of the buckets whose votes are, counted from 1
  std::optional<uint64_t> last_;  // how many buckets all ranks enter
};

// A schedule that begins, and its buckets, looked up.
struct ResolvedSchedule {
  Schedule schedule;
  std::vector<AgreedBucket> buckets;
};

// The locked schedule, as one rank sees it: buckets that all ranks carry out over and over without being told.
//
//               Begin                   RequestUnlock, a lost vote              Unlock
//   kUnlocked ---------->  kFollowing  ---------------------------> kUnlocking ---------> kUnlocked
//
// kUnlocked: no schedule is locked. Submissions are negotiated, and the coordinator's detector (schedule_planner.h)
// watches for steps that repeat themselves.
//
// kFollowing: nothing is negotiated and no control message is sent. A rank enters the next bucket when it has submitted
// all of the bucket's tensors. Every rank takes part in every bucket (steps with smaller process sets are not locked:
// their members shall not wait for ranks outside). Ahead of its data each bucket has a vote, and no rank touches its
// outputs before it knows the votes of all.
//
// kUnlocking: this rank wants to unlock. It enters the next bucket at once, without its tensors and with a veto. A
// vetoed bucket is carried out by no rank, and none enters another: the buckets before it are complete on all ranks, it
// and those after it on none. So all ranks unlock at the same position. Then the tensors in flight are negotiated.
//
// Causes to unlock: a tensor is submitted that is not in the schedule, or differs from it; this rank shuts down; on the
// coordinator, autotune wants other settings; a rank has called the schedule off (CallOff). Ranks call it off when they
// want to unlock, so that ranks that sleep wake up and vote too; and when they have waited in a bucket for longer than
// the warning time. A rank that is merely late makes the others wait, in the bucket.
//
// The last cause is patience: tensors have been submitted here for long without the next bucket being ready. That is
// for programs that have changed their ways: if one now waits for each tensor before it submits the next, a bucket with
// both never becomes ready, on any rank; so the negotiation runs each as it comes. And it is for threads that have
// taken to different paces: in a schedule the fast one would wait for the slow one in every round.
//
// Votes on buckets in the memory of a device are open for a while, in which this rank goes on (VoteWindow).
//
// A pure state machine: it sends nothing and reads no clock. Thread-compatible. One object serves all schedules of a
// job, one after the other.
class LockedSchedule {
 public:
  // How many buckets a rank may be ahead of the oldest open vote, at least; the same on all ranks of a job. In a
  // schedule of more buckets it is so many: a round never waits for its own votes.
  static constexpr uint64_t kOpenVotes = 8;
  // Longer than the parts of a backward pass between two tensors of a bucket usually take. Unlocking too early costs a
  // few negotiated steps.
  static constexpr absl::Duration kPatience = absl::Seconds(1);
  // If a thread sleeps until something is complete, it may well be the one that is to submit the missing tensor.
  static constexpr absl::Duration kPatienceOfWaiters = absl::Milliseconds(20);

  enum class State : uint8_t { kUnlocked, kFollowing, kUnlocking };
  State state() const { return state_; }
  bool locked() const { return state_ != State::kUnlocked; }
  bool unlocking() const { return state_ == State::kUnlocking; }

  // REQUIRES: !locked(); no bucket is empty, and no tensor is there twice (the codec has checked).
  void Begin(ResolvedSchedule resolved, absl::Time now);

  // This rank wants to unlock. Nothing happens if no schedule is locked.
  void RequestUnlock();

  // The number of the schedule that is, or was last, locked.
  uint64_t number() const { return number_; }

  // --- Submissions. REQUIRES: locked().

  // Where a tensor is in the schedule: which bucket, and which of its tensors.
  struct Position {
    size_t bucket = 0;
    size_t tensor = 0;
  };

  // A tensor has been submitted here; `id` is its own in the response cache, if it is there. Its position; if it is not
  // in the schedule, nullopt, and this rank wants to unlock. From one submission to the next its bucket must have been
  // carried out.
  std::optional<Position> Submit(std::optional<CacheId> id);

  // The same for a caller that knows the position.
  void SubmitAgain(Position position);

  // How many tensors have been submitted here that are not carried out yet.
  size_t submitted() const { return submitted_; }

  // --- Calls to unlock, of this rank and others.

  // Some rank has called off the schedule of this number, and those before.
  void NoteCallOff(uint64_t schedule) { called_off_ = std::max(called_off_, schedule); }
  bool called_off() const { return locked() && called_off_ >= number_; }
  // This rank calls the schedule off. Whether it is the first, as far as it knows: then the caller tells the others.
  bool CallOff();

  // Wants to unlock if patience is at an end (above). `surroundings`: of this rank.
  struct Surroundings {
    bool has_submissions = false;  // some operation is in flight
    bool is_awaited = false;       // a thread sleeps until an operation is complete
  };
  void CheckPatience(Surroundings surroundings, absl::Time now);

  // When to call CheckPatience again though nothing has been submitted.
  absl::Time next_look() const { return std::min(next_look_, awaited_since_ + kPatienceOfWaiters); }

  // --- Buckets. REQUIRES: locked().

  // The bucket to enter now: approving, or with a veto while unlocking(). nullptr while this rank lacks
  // tensors of it, or has to wait for open votes.
  const AgreedBucket* Next() const;

  // The position of the bucket that is next, now or later.
  size_t next_bucket() const { return next_; }

  // This rank has entered Next() at `now`. Its vote is known at once, or is open.
  using Outcome = VoteWindow::Outcome;
  void Enter(Outcome outcome, absl::Time now);
  void EnterOpen(absl::Time now);

  // The oldest open vote has ended.
  void Settle(Outcome outcome);

  bool has_open() const { return !open_.empty(); }
  // REQUIRES: has_open().
  absl::Time oldest_open_since() const { return open_.front().since; }

  // How far the schedule has been carried out.
  const ScheduleProgress& progress() const { return progress_; }

  // Whether patience came to an end in the schedule that is, or was last, locked.
  bool has_lost_patience() const { return has_lost_patience_; }

  // Whether all ranks unlock here.
  bool HasToUnlock() const { return locked() && window_.HasToUnlock(); }

  // REQUIRES: HasToUnlock(). The caller submits all that is in flight to the negotiation once more. Whether this rank
  // was one of those that brought it about.
  enum class Cause { kOwn, kOthers };
  Cause Unlock();

 private:
  struct Slot {
    AgreedBucket bucket;
    size_t missing = 0;  // tensors that this rank has not submitted yet
  };
  // A vote of this rank.
  struct Entered {
    bool has_vetoed = false;
    bool ends_round = false;  // if it is carried out
    absl::Time since;
  };

  // This rank enters the next bucket and is past it.
  Entered MoveOn(absl::Time now);
  void Count(const Entered& entered, Outcome outcome);
  // Whether the next bucket is known to lack tensors, not for too long yet, and no thread waits.
  bool LacksTensors(Surroundings surroundings, absl::Time now) const;
  // Whether threads of this program mostly wait for each other's tensors.
  bool IsHeldUp(absl::Time now) const;

  State state_ = State::kUnlocked;
  uint64_t number_ = 0;
  std::vector<Slot> slots_;
  absl::flat_hash_map<CacheId, Position> position_of_;
  size_t next_ = 0;
  size_t submitted_ = 0;
  ScheduleProgress progress_;
  bool has_lost_patience_ = false;
  uint64_t called_off_ = 0;  // the highest schedule that has been, as far as this rank knows

  VoteWindow window_{kOpenVotes};
  std::deque<Entered> open_;   // in the order in which they were entered
  Cause cause_ = Cause::kOwn;  // of the first vote that was lost

  // When the schedule began, and how long threads have waited in it for buckets that lacked a tensor.
  absl::Time began_;
  absl::Duration awaited_;
  // Since when no bucket is ready though something is in flight; and a thread waits besides.
  absl::Time stuck_since_ = absl::InfiniteFuture();
  absl::Time awaited_since_ = absl::InfiniteFuture();
  // When to look at stuck_since_ again. Not sooner because something is stuck no more: a deadline that moves with every
  // bucket would wake the background thread every time.
  absl::Time next_look_ = absl::InfiniteFuture();
};

// The launched buckets of a device of which this rank does not know yet that they are carried out. Their votes are
// open; or they were lost, and the tensors have still to be carried out in other buckets.
//
// The trainer's streams may wait for such a bucket on the device: for its gate, which a lost vote leaves closed until
// the tensors have been carried out. So Ronda's stream must not wait for anything that may be behind a closed gate: the
// work that opens the gate comes later on that stream. The points at which tensors are ready know the last bucket that
// they may be behind, and a tensor is given to the device, and to the negotiation, when all buckets up to that one have
// been carried out. (That is late in a step, and early for the device: it has done the step before, and still has all
// work between that and the tensor before it.)
//
// A value. Thread-compatible.
class UndecidedBuckets {
 public:
  // A bucket is launched. Its number: 1, 2, ...
  uint64_t Add() {
    undecided_.push_back(++last_);
    return last_;
  }

  // The bucket has been carried out: what opens its gate is on the device.
  // REQUIRES: it was added, and not settled.
  void Settle(uint64_t number) { undecided_.erase(std::lower_bound(undecided_.begin(), undecided_.end(), number)); }

  // Whether something that may be behind bucket `number` and those before it can be waited for; 0: behind none.
  bool MayAwait(uint64_t number) const { return undecided_.empty() || number < undecided_.front(); }

  bool empty() const { return undecided_.empty(); }

  friend auto operator<=>(const UndecidedBuckets&, const UndecidedBuckets&) = default;

 private:
  uint64_t last_ = 0;
  std::deque<uint64_t> undecided_;  // ascending
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SCHEDULE_LOCKED_SCHEDULE_H_
