// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_STEP_LOCKED_SCHEDULE_H_
#define RONDA_RUNTIME_STEP_LOCKED_SCHEDULE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/step/step.h"
#include "runtime/step/vote.h"

namespace ronda {

// The locked schedule, as one rank sees it: buckets that all ranks carry out again and again, without control messages.
//
//               Begin                      VetoNext, a lost vote                Unlock
//   kUnlocked ---------->  kFollowing  ---------------------------> kUnlocking ---------> kUnlocked
//
// kUnlocked: no schedule is locked. Submissions are negotiated, and the coordinator looks for steps that repeat.
//
// kFollowing: the ranks negotiate nothing and send no control message. A rank enters the next bucket when it has
// submitted all tensors of the bucket. Every rank takes part in every bucket. (Steps with smaller process sets are not
// locked, because their members must not wait for ranks outside the set.) Each bucket has a vote, which the ranks send
// with the data or before them. No rank writes to its outputs before it knows the votes of all ranks.
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
//  - Another rank has requested to unlock. A rank sends that request when it wants to unlock, so that sleeping ranks
//    wake up and vote. It also sends the request when it has waited in a bucket for longer than the warning time.
//  - Submitted tensors have waited too long because the next bucket is not ready (CheckWaits). This happens when a
//    program changes: if it now waits for each tensor before it submits the next, a bucket with both tensors never
//    becomes ready on any rank. The negotiation runs each tensor as it comes. It also happens when threads of a program
//    work at different speeds: in a schedule the fast thread would wait for the slow one in every round.
//
// A rank that is merely late is no reason to unlock: the other ranks wait for it in the bucket.
//
// A pure state machine: it sends nothing and reads no clock. Thread-compatible. One object serves all schedules of a
// job, one after the other.
class LockedSchedule {
 public:
  // How long submitted tensors may wait for other tensors of their bucket. The limit is longer than the usual time
  // between two tensors of a bucket in a backward pass. To unlock too early costs a few negotiated steps.
  static constexpr absl::Duration kLimit = absl::Seconds(1);
  // The limit is shorter if a thread sleeps until an operation is complete, because that thread may be the one that
  // submits the missing tensor.
  static constexpr absl::Duration kAwaitedLimit = absl::Milliseconds(20);

  enum class State : uint8_t { kUnlocked, kFollowing, kUnlocking };
  State state() const { return state_; }
  bool locked() const { return state_ != State::kUnlocked; }
  bool unlocking() const { return state_ == State::kUnlocking; }

  // REQUIRES: !locked(); no bucket is empty, and no tensor occurs twice (the codec has checked this).
  void Begin(const Schedule& schedule, absl::Time now);

  // Called if this rank wants to unlock. Then it vetoes the next bucket. Does nothing if no schedule is locked.
  void VetoNext();

  // The number of the schedule that is locked now, or was locked last.
  uint64_t number() const { return number_; }

  // --- Submissions.

  // A tensor has been submitted here; `id` is its id in the response cache, if it has one. Returns its place. If it is
  // not in the schedule, returns nullopt, and this rank wants to unlock. Between two submissions of a tensor its bucket
  // must have been carried out.
  // REQUIRES: locked().
  std::optional<StepPlace> Submit(std::optional<CacheId> id);

  // As Submit, for a tensor for which Submit has returned `place`. `version` is the current version of the tensor's
  // request. Returns false, and does nothing, if `place` is not in the schedule that is locked now, or if it has
  // another version.
  bool SubmitAgain(const StepPlace& place, uint64_t version);

  // How many tensors have been submitted here but not carried out yet.
  size_t submitted() const { return submitted_; }

  // --- Requests to unlock, by this rank and by others.

  // Some rank has requested to unlock the schedule with this number, and all earlier ones.
  void RecordUnlockRequest(uint64_t schedule) { unlock_requested_ = std::max(unlock_requested_, schedule); }
  bool unlock_requested() const { return locked() && unlock_requested_ >= number_; }
  // This rank requests to unlock. Returns whether, as far as this rank knows, it is the first rank to do so. If so, the
  // caller must send the request to the other ranks.
  bool RequestUnlock();

  // Vetoes the next bucket if tensors have waited too long (see above). `surroundings` describes this rank.
  struct Surroundings {
    bool has_submissions = false;  // some operation is in flight
    bool is_awaited = false;       // a thread sleeps until an operation is complete
  };
  void CheckWaits(Surroundings surroundings, absl::Time now);

  // When to call CheckWaits again even if nothing has been submitted.
  absl::Time next_look() const { return std::min(next_look_, awaited_since_ + kAwaitedLimit); }

  // --- Buckets. REQUIRES: locked().

  // Returns the index of the bucket to enter now, with a veto if unlocking(), else with an approval. nullopt while this
  // rank lacks tensors of the bucket, or if it has to unlock.
  std::optional<size_t> Next() const;

  // This rank has entered Next() at `now`, and the ranks have voted.
  void Enter(Ballot::Result result, absl::Time now);

  // How far the schedule has been carried out.
  const ScheduleProgress& progress() const { return progress_; }

  // Whether tensors waited too long (CheckWaits) in the schedule that is locked now, or was locked last.
  bool has_timed_out() const { return has_timed_out_; }

  // Whether all ranks unlock at this point, because a bucket was vetoed.
  bool HasToUnlock() const { return locked() && lost_vote_.has_value(); }

  // Unlocks. The caller submits everything in flight to the negotiation again. Returns this rank's vote on the vetoed
  // bucket.
  // REQUIRES: HasToUnlock().
  Ballot::Vote Unlock();

 private:
  struct Bucket {
    size_t tensors = 0;
    size_t missing = 0;  // tensors that this rank has not submitted yet
  };

  // Counts one more submitted tensor.
  void Count(const StepPlace& place);
  // Whether, at the last look, the next bucket lacked tensors, it is too early for another look, and no thread waits.
  bool LacksTensors(Surroundings surroundings, absl::Time now) const;
  // Whether threads of this program spend most of the time waiting for each other's tensors.
  bool IsHeldUp(absl::Time now) const;

  State state_ = State::kUnlocked;
  uint64_t number_ = 0;
  std::vector<Bucket> buckets_;
  absl::flat_hash_map<CacheId, StepPlace> place_of_;
  size_t next_ = 0;
  size_t submitted_ = 0;
  ScheduleProgress progress_;
  bool has_timed_out_ = false;
  uint64_t unlock_requested_ = 0;  // the highest number that was requested, as far as this rank knows

  std::optional<Ballot::Vote> lost_vote_;  // this rank's vote on the vetoed bucket

  // When the schedule began, and how long threads have waited in it for buckets that lacked tensors.
  absl::Time began_;
  absl::Duration awaited_;
  // The time since when operations have been in flight but no bucket has been ready, and the time since when a thread
  // has also waited.
  absl::Time stuck_since_ = absl::InfiniteFuture();
  absl::Time awaited_since_ = absl::InfiniteFuture();
  // When to look at stuck_since_ again. This time does not move when a bucket becomes ready. If it did, every bucket
  // would wake the background thread to tell it a new deadline.
  absl::Time next_look_ = absl::InfiniteFuture();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_LOCKED_SCHEDULE_H_
