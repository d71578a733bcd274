// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NEGOTIATION_LOCKED_SCHEDULE_H_
#define RONDA_RUNTIME_NEGOTIATION_LOCKED_SCHEDULE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/schedule_planner.h"

namespace ronda {

// Decides how many buckets of a locked schedule a rank may enter while votes are open. A vote on tensors in the memory
// of a device is open until the device has reached the bucket, because the device counts these votes.
//
// Each rank knows the outcome of bucket n before it enters bucket n + `size`, counted from the beginning of the
// schedule. After a veto of bucket n all ranks therefore enter the buckets up to n + size - 1, and unlock there. The
// rank that vetoed n also vetoes all buckets after n. If the vote on one of these is known at once, all ranks unlock at
// that bucket instead. Before a rank unlocks, it awaits the votes that are still open.
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

  // This rank has entered the next bucket. Enter: its vote is known at once. EnterOpen: its vote is open.
  // REQUIRES: MayEnter().
  void Enter(Outcome outcome) {
    ++entered_;
    if (outcome == Outcome::kVetoed) EndAt(entered_);
  }
  void EnterOpen() { open_.push_back(++entered_); }

  // The oldest open vote has ended.
  // REQUIRES: has_open().
  void Settle(Outcome outcome) {
    if (outcome == Outcome::kVetoed) EndAt(open_.front() + size_ - 1);
    open_.pop_front();
  }

  bool has_open() const { return !open_.empty(); }
  uint64_t entered() const { return entered_; }  // number of buckets so far

  // Whether a vote was lost: since then this rank wants to unlock.
  bool is_lost() const { return last_.has_value(); }

  // Whether this rank has entered the last bucket that the ranks enter, and knows the outcome of all buckets.
  bool HasToUnlock() const { return last_ && entered_ >= *last_ && open_.empty(); }

  friend auto operator<=>(const VoteWindow&, const VoteWindow&) = default;

 private:
  void EndAt(uint64_t last) { last_ = std::min(last, last_.value_or(last)); }

  uint64_t size_;
  uint64_t entered_ = 0;
  std::deque<uint64_t> open_;     // the numbers of the buckets with open votes, counted from 1
  std::optional<uint64_t> last_;  // how many buckets all ranks enter
};

// A schedule that is about to begin, with its buckets looked up.
struct ResolvedSchedule {
  Schedule schedule;
  std::vector<AgreedBucket> buckets;
};

// The locked schedule, as one rank sees it: buckets that all ranks carry out again and again, without control messages.
//
//               Begin                   RequestUnlock, a lost vote              Unlock
//   kUnlocked ---------->  kFollowing  ---------------------------> kUnlocking ---------> kUnlocked
//
// kUnlocked: no schedule is locked. Submissions are negotiated, and the coordinator's detector (schedule_planner.h)
// looks for steps that repeat.
//
// kFollowing: the ranks negotiate nothing and send no control message. A rank enters the next bucket when it has
// submitted all tensors of the bucket. Every rank takes part in every bucket. (Steps with smaller process sets are not
// locked, because their members must not wait for ranks outside the set.) Each bucket has a vote, which the ranks send
// before the data. No rank writes to its outputs before it knows the votes of all ranks.
//
// kUnlocking: this rank wants to unlock. It enters the next bucket at once, without its tensors, and vetoes it. No rank
// carries out a vetoed bucket, and no rank enters another bucket after it. So all ranks have completed the buckets up
// to the vetoed one, and no rank has carried out any later bucket: all ranks unlock at the same position. Then the
// tensors in flight are negotiated.
//
// A rank wants to unlock in these cases:
//  - A tensor is submitted that is not in the schedule, or that differs from the one in the schedule.
//  - This rank shuts down.
//  - This rank is the coordinator, and autotune wants other settings.
//  - A rank has called the schedule off (CallOff). A rank does so when it wants to unlock, so that sleeping ranks wake
//    up and vote. It also does so when it has waited in a bucket for longer than the warning time.
//  - Submitted tensors have waited too long because the next bucket is not ready (CheckPatience). This happens when a
//    program changes: if it now waits for each tensor before it submits the next, a bucket with both tensors never
//    becomes ready on any rank. The negotiation runs each tensor as it comes. It also happens when threads of a program
//    work at different speeds: in a schedule the fast thread would wait for the slow one in every round.
//
// A rank that is merely late is no reason to unlock: the other ranks wait for it in the bucket.
//
// A vote on a bucket in the memory of a device is open for a while. This rank goes on meanwhile (VoteWindow).
//
// A pure state machine: it sends nothing and reads no clock. Thread-compatible. One object serves all schedules of a
// job, one after the other.
class LockedSchedule {
 public:
  // A rank may be at least this many buckets ahead of the oldest open vote; the number is equal on all ranks of a job.
  // A schedule with more buckets uses its number of buckets, so that a round never waits for its own votes.
  static constexpr uint64_t kOpenVotes = 8;
  // Longer than the usual time between two tensors of a bucket in a backward pass. To unlock too early costs a few
  // negotiated steps.
  static constexpr absl::Duration kPatience = absl::Seconds(1);
  // Shorter if a thread sleeps until an operation is complete: that thread may be the one that submits the missing
  // tensor.
  static constexpr absl::Duration kPatienceOfWaiters = absl::Milliseconds(20);

  enum class State : uint8_t { kUnlocked, kFollowing, kUnlocking };
  State state() const { return state_; }
  bool locked() const { return state_ != State::kUnlocked; }
  bool unlocking() const { return state_ == State::kUnlocking; }

  // REQUIRES: !locked(); no bucket is empty, and no tensor occurs twice (the codec has checked this).
  void Begin(ResolvedSchedule resolved, absl::Time now);

  // This rank wants to unlock. Does nothing if no schedule is locked.
  void RequestUnlock();

  // The number of the schedule that is locked now, or was locked last.
  uint64_t number() const { return number_; }

  // --- Submissions. REQUIRES: locked().

  // The place of a tensor in the schedule: the index of its bucket, and its index in the bucket.
  struct Position {
    size_t bucket = 0;
    size_t tensor = 0;
  };

  // A tensor has been submitted here; `id` is its id in the response cache, if it has one. Returns its position. If it
  // is not in the schedule, returns nullopt, and this rank wants to unlock. Between two submissions of a tensor its
  // bucket must have been carried out.
  std::optional<Position> Submit(std::optional<CacheId> id);

  // As Submit, for a caller that knows the position.
  void SubmitAgain(Position position);

  // How many tensors have been submitted here but not carried out yet.
  size_t submitted() const { return submitted_; }

  // --- Calls to unlock, by this rank and by others.

  // Some rank has called off the schedule with this number, and all earlier ones.
  void NoteCallOff(uint64_t schedule) { called_off_ = std::max(called_off_, schedule); }
  bool called_off() const { return locked() && called_off_ >= number_; }
  // This rank calls the schedule off. Returns whether, as far as it knows, it is the first rank to do so. If so, the
  // caller notifies the other ranks.
  bool CallOff();

  // Requests to unlock if tensors have waited too long (see above). `surroundings` describes this rank.
  struct Surroundings {
    bool has_submissions = false;  // some operation is in flight
    bool is_awaited = false;       // a thread sleeps until an operation is complete
  };
  void CheckPatience(Surroundings surroundings, absl::Time now);

  // When to call CheckPatience again even if nothing has been submitted.
  absl::Time next_look() const { return std::min(next_look_, awaited_since_ + kPatienceOfWaiters); }

  // --- Buckets. REQUIRES: locked().

  // The bucket to enter now: approving it, or with a veto if unlocking(). nullptr while this rank lacks tensors of the
  // bucket, or must wait for open votes.
  const AgreedBucket* Next() const;

  // The index of the bucket that this rank enters next, now or later.
  size_t next_bucket() const { return next_; }

  // This rank has entered Next() at `now`. Enter: its vote is known at once. EnterOpen: its vote is open.
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

  // Whether tensors waited too long (CheckPatience) in the schedule that is locked now, or was locked last.
  bool has_lost_patience() const { return has_lost_patience_; }

  // Whether all ranks unlock at this point.
  bool HasToUnlock() const { return locked() && window_.HasToUnlock(); }

  // Unlocks. The caller submits everything in flight to the negotiation again. Returns whether this rank was among
  // those that caused the unlock.
  // REQUIRES: HasToUnlock().
  enum class Cause { kOwn, kOthers };
  Cause Unlock();

 private:
  struct Slot {
    AgreedBucket bucket;
    size_t missing = 0;  // tensors of the bucket that this rank has not submitted yet
  };
  // A bucket that this rank has entered, and its vote.
  struct Entered {
    bool has_vetoed = false;
    bool ends_round = false;  // if the bucket is carried out
    absl::Time since;
  };

  // This rank enters the next bucket and moves past it.
  Entered MoveOn(absl::Time now);
  void Count(const Entered& entered, Outcome outcome);
  // Whether, at the last look, the next bucket lacked tensors, it is too early for another look, and no thread waits.
  bool LacksTensors(Surroundings surroundings, absl::Time now) const;
  // Whether threads of this program spend most of the time waiting for each other's tensors.
  bool IsHeldUp(absl::Time now) const;

  State state_ = State::kUnlocked;
  uint64_t number_ = 0;
  std::vector<Slot> slots_;
  absl::flat_hash_map<CacheId, Position> position_of_;
  size_t next_ = 0;
  size_t submitted_ = 0;
  ScheduleProgress progress_;
  bool has_lost_patience_ = false;
  uint64_t called_off_ = 0;  // the highest number that was called off, as far as this rank knows

  VoteWindow window_{kOpenVotes};
  std::deque<Entered> open_;   // in the order of entry
  Cause cause_ = Cause::kOwn;  // of the first lost vote

  // When the schedule began, and how long threads have waited in it for buckets that lacked tensors.
  absl::Time began_;
  absl::Duration awaited_;
  // Since when operations have been in flight but no bucket has been ready; and since when a thread has waited as well.
  absl::Time stuck_since_ = absl::InfiniteFuture();
  absl::Time awaited_since_ = absl::InfiniteFuture();
  // When to look at stuck_since_ again. It does not move when a bucket becomes ready: otherwise every bucket would wake
  // the background thread to tell it a new deadline.
  absl::Time next_look_ = absl::InfiniteFuture();
};

// The launched buckets of a device that, as far as this rank knows, are not carried out yet. Their votes are open; or
// they were lost, and the tensors must still be carried out in other buckets.
//
// On the device, the trainer's streams may wait for the gate of such a bucket. After a lost vote the gate stays closed
// until the tensors have been carried out. The work that opens it comes later on Ronda's stream, so Ronda's stream must
// not wait for anything that may be behind a closed gate. Each point at which a tensor is ready (ReadyPoint) knows the
// last bucket that it may be behind. The tensor goes to the device, and to the negotiation, when all buckets up to that
// one have been carried out. (The rank learns this late in its step, but early enough for the device, which still has
// queued work to do.)
//
// A value. Thread-compatible.
class UndecidedBuckets {
 public:
  // A bucket is launched. Returns its number: 1, 2, ...
  uint64_t Add() {
    undecided_.push_back(++last_);
    return last_;
  }

  // The bucket has been carried out: the work that opens its gate is on the device.
  // REQUIRES: the bucket was added, and not settled.
  void Settle(uint64_t number) { undecided_.erase(std::lower_bound(undecided_.begin(), undecided_.end(), number)); }

  // Whether Ronda's stream may wait for something that may be behind bucket `number` or an earlier one. 0: it is behind
  // none.
  bool MayAwait(uint64_t number) const { return undecided_.empty() || number < undecided_.front(); }

  bool empty() const { return undecided_.empty(); }

  friend auto operator<=>(const UndecidedBuckets&, const UndecidedBuckets&) = default;

 private:
  uint64_t last_ = 0;
  std::deque<uint64_t> undecided_;  // ascending
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_LOCKED_SCHEDULE_H_
