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
// locked: the members of such a set must not wait for ranks outside the set.) The ranks vote on each bucket, and send
// their votes with the bucket's data or before it. No rank writes to its outputs before it knows the votes of all
// ranks.
//
// kUnlocking: this rank wants to unlock. The rank enters the next bucket at once, without its tensors, and vetoes the
// bucket. No rank carries out a vetoed bucket, and no rank enters another bucket after it. So all ranks have completed
// the buckets before the vetoed bucket, and no rank has carried out any later one. All ranks unlock the schedule there,
// and then negotiate the tensors in flight.
//
// A rank wants to unlock the schedule in these cases:
//  - A tensor is submitted that is not in the schedule, or whose request has changed.
//  - This rank shuts down.
//  - This rank is the coordinator, and autotune wants other settings.
//  - Another rank has requested an unlock. A rank that wants to unlock sends this request, so that sleeping ranks wake
//    up and vote. A rank also sends this request when it has waited in a bucket for longer than the warning time.
//  - Submitted tensors have waited too long because the next bucket is not ready (CheckWaits). For example, a program
//    that now waits for each tensor before it submits the next one never fills a bucket with two tensors. After the
//    unlock, each tensor runs as soon as all ranks have submitted it. Tensors also wait too long if the threads of a
//    program work at different speeds: in a schedule, the fast thread waits for the slow one in every round.
//
// A rank that is only late makes no rank unlock the schedule: the other ranks wait for it in the bucket.
//
// A pure state machine, which sends nothing and reads no clock. Thread-compatible. One LockedSchedule handles all
// schedules of a job, one after another.
class LockedSchedule {
 public:
  // How long submitted tensors may wait for other tensors of their bucket. The limit is longer than the usual time
  // between two tensors of a bucket in a backward pass, because a rank that unlocks too early costs the job a few steps
  // of negotiation.
  static constexpr absl::Duration kLimit = absl::Seconds(1);
  // The limit is shorter while a thread sleeps until an operation is complete, because that thread may be the one to
  // submit the missing tensor.
  static constexpr absl::Duration kAwaitedLimit = absl::Milliseconds(20);

  enum class State : uint8_t { kUnlocked, kFollowing, kUnlocking };
  State state() const { return state_; }
  bool locked() const { return state_ != State::kUnlocked; }
  bool unlocking() const { return state_ == State::kUnlocking; }

  // REQUIRES: !locked(); no bucket is empty, and no tensor occurs twice (the codec has checked this).
  void Begin(const Schedule& schedule, absl::Time now);

  // Makes this rank veto the next bucket, in order to unlock. Does nothing if no schedule is locked.
  void VetoNext();

  // The number of the schedule that is locked, or was locked last.
  uint64_t number() const { return number_; }

  // --- Submissions.

  // Records that this rank has submitted a tensor. `id` is the tensor's id in the response cache, if it has one.
  // Returns the tensor's place in the schedule. If the tensor is not in the schedule, returns nullopt, and this rank
  // wants to unlock. A tensor may be submitted again only after its bucket has been carried out.
  // REQUIRES: locked().
  std::optional<StepPlace> Submit(std::optional<CacheId> id);

  // Like Submit, but for a tensor for which Submit returned `place`. `version` is the current version of the tensor's
  // request. Returns false and does nothing if `place` is not in the locked schedule, or has another version of the
  // request.
  bool SubmitAgain(const StepPlace& place, uint64_t version);

  // Returns how many tensors this rank has submitted whose buckets have not been carried out yet.
  size_t submitted() const { return submitted_; }

  // --- Requests of this rank and of other ranks to unlock the schedule.

  // Records that some rank has requested to unlock the schedule with this number and all earlier schedules.
  void RecordUnlockRequest(uint64_t schedule) { unlock_requested_ = std::max(unlock_requested_, schedule); }
  bool unlock_requested() const { return locked() && unlock_requested_ >= number_; }
  // Records that this rank requests an unlock. Returns true if this rank knows of no earlier request; the caller must
  // then send the request to the other ranks.
  bool RequestUnlock();

  // Vetoes the next bucket if tensors have waited too long (see above). `surroundings` says what this rank is doing.
  struct Surroundings {
    bool has_submissions = false;  // some operation is in flight
    bool is_awaited = false;       // a thread sleeps until an operation is complete
  };
  void CheckWaits(Surroundings surroundings, absl::Time now);

  // Returns when to call CheckWaits again even if nothing has been submitted.
  absl::Time next_look() const { return std::min(next_look_, awaited_since_ + kAwaitedLimit); }

  // --- Buckets. REQUIRES: locked().

  // Returns the index of the bucket that this rank must enter now. The rank vetoes this bucket if unlocking(), and
  // approves it otherwise. Returns nullopt if this rank lacks tensors of the bucket, or if it must unlock the schedule.
  std::optional<size_t> Next() const;

  // Records that this rank has entered bucket Next() at `now`, and that the ranks have voted.
  void Enter(Ballot::Result result, absl::Time now);

  // Returns how far the schedule has been carried out.
  const ScheduleProgress& progress() const { return progress_; }

  // Returns whether tensors have waited too long (CheckWaits) in the schedule that is locked, or was locked last.
  bool has_timed_out() const { return has_timed_out_; }

  // Returns whether all ranks unlock the schedule here, because they have vetoed a bucket.
  bool HasToUnlock() const { return locked() && lost_vote_.has_value(); }

  // Unlocks the schedule. After Unlock, the caller must submit all tensors in flight to the negotiation again. Returns
  // this rank's vote on the vetoed bucket.
  // REQUIRES: HasToUnlock().
  Ballot::Vote Unlock();

 private:
  struct Bucket {
    size_t tensors = 0;
    size_t missing = 0;  // tensors that this rank has not submitted yet
  };

  // Counts another submitted tensor.
  void Count(const StepPlace& place);
  // Returns true if the last check found that the next bucket lacks tensors, the next check is not due, and no thread
  // waits.
  bool LacksTensors(Surroundings surroundings, absl::Time now) const;
  // Returns whether the program's threads spend most of the time waiting for each other's tensors.
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

  // When the schedule began, and how long threads have since waited for buckets that lacked tensors.
  absl::Time began_;
  absl::Duration awaited_;
  // Since when operations have been in flight without any bucket becoming ready, and since when a thread has also
  // waited.
  absl::Time stuck_since_ = absl::InfiniteFuture();
  absl::Time awaited_since_ = absl::InfiniteFuture();
  // When to check stuck_since_ again. A bucket that becomes ready does not change this time. Otherwise every bucket
  // would wake the background thread, to give it a new deadline.
  absl::Time next_look_ = absl::InfiniteFuture();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_LOCKED_SCHEDULE_H_
