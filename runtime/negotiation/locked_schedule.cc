// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/locked_schedule.h"

#include <algorithm>
#include <utility>

#include "runtime/base/logging.h"

namespace ronda {

void LockedSchedule::Begin(ResolvedSchedule resolved, absl::Time now) {
  RONDA_CHECK(!locked());
  const Schedule& schedule = resolved.schedule;
  RONDA_CHECK(schedule.buckets.size() == resolved.buckets.size());
  slots_.clear();
  slots_.reserve(resolved.buckets.size());
  position_of_.clear();
  for (size_t bucket = 0; bucket < resolved.buckets.size(); ++bucket) {
    const std::vector<CacheId>& ids = schedule.buckets[bucket];
    for (size_t i = 0; i < ids.size(); ++i) {
      RONDA_CHECK(position_of_.emplace(ids[i], Position{.bucket = bucket, .tensor = i}).second);
    }
    const size_t tensors = resolved.buckets[bucket].responses.size();
    slots_.push_back({std::move(resolved.buckets[bucket]), tensors});
  }
  state_ = State::kFollowing;
  number_ = schedule.number;
  next_ = submitted_ = 0;
  progress_ = {};
  has_lost_patience_ = false;
  window_ = VoteWindow(std::max<uint64_t>(kOpenVotes, slots_.size()));
  began_ = now;
  awaited_ = absl::ZeroDuration();
}

void LockedSchedule::RequestUnlock() {
  if (locked()) state_ = State::kUnlocking;
}

LockedSchedule::Cause LockedSchedule::Unlock() {
  RONDA_CHECK(HasToUnlock());
  state_ = State::kUnlocked;
  return cause_;
}

// --- Submissions ---

std::optional<LockedSchedule::Position> LockedSchedule::Submit(std::optional<CacheId> id) {
  const auto it = id ? position_of_.find(*id) : position_of_.end();
  if (it == position_of_.end()) {
    RequestUnlock();
    return std::nullopt;
  }
  SubmitAgain(it->second);
  return it->second;
}

void LockedSchedule::SubmitAgain(Position position) {
  Slot& slot = slots_[position.bucket];
  RONDA_CHECK(slot.missing > 0);
  --slot.missing;
  ++submitted_;
}

// --- Causes to unlock ---

bool LockedSchedule::CallOff() {
  if (called_off_ >= number_) return false;
  called_off_ = number_;
  return true;
}

void LockedSchedule::CheckPatience(Surroundings surroundings, absl::Time now) {
  if (HasToUnlock() || Next() != nullptr || LacksTensors(surroundings, now)) return;
  // If a bucket waits for the device, the schedule moves on without help.
  if (!surroundings.has_submissions || has_open()) {
    stuck_since_ = awaited_since_ = absl::InfiniteFuture();
  } else {
    stuck_since_ = std::min(stuck_since_, now);
    awaited_since_ = surroundings.is_awaited ? std::min(awaited_since_, now) : absl::InfiniteFuture();
  }
  if (now >= stuck_since_ + kPatience || now >= awaited_since_ + kPatienceOfWaiters || IsHeldUp(now)) {
    has_lost_patience_ = true;
    return RequestUnlock();
  }
  if (now >= next_look_ || next_look_ == absl::InfiniteFuture()) next_look_ = stuck_since_ + kPatience;
}

// True during most submissions of a step.
bool LockedSchedule::LacksTensors(Surroundings surroundings, absl::Time now) const {
  return stuck_since_ <= now && now < next_look_ && awaited_since_ == absl::InfiniteFuture() &&
         !surroundings.is_awaited && surroundings.has_submissions;
}

// Threads that work at different speeds wait for each other in every round. Waits in one or two rounds may be chance.
bool LockedSchedule::IsHeldUp(absl::Time now) const {
  return awaited_ > kPatienceOfWaiters && awaited_ > (now - began_) / 2;
}

// --- Buckets ---

const AgreedBucket* LockedSchedule::Next() const {
  const Slot& slot = slots_[next_];
  return window_.MayEnter() && (slot.missing == 0 || unlocking()) ? &slot.bucket : nullptr;
}

void LockedSchedule::Enter(Outcome outcome, absl::Time now) {
  const Entered entered = MoveOn(now);
  RONDA_CHECK(outcome == Outcome::kVetoed || !entered.has_vetoed);
  Count(entered, outcome);
  window_.Enter(outcome);
}

void LockedSchedule::EnterOpen(absl::Time now) {
  open_.push_back(MoveOn(now));
  window_.EnterOpen();
}

void LockedSchedule::Settle(Outcome outcome) {
  Count(open_.front(), outcome);
  window_.Settle(outcome);
  open_.pop_front();
}

LockedSchedule::Entered LockedSchedule::MoveOn(absl::Time now) {
  if (awaited_since_ < now) awaited_ += now - awaited_since_;
  stuck_since_ = awaited_since_ = absl::InfiniteFuture();
  Slot& slot = slots_[next_];
  if (!unlocking()) {
    // From now on tensors of the next round may be submitted.
    RONDA_CHECK(slot.missing == 0);
    slot.missing = slot.bucket.responses.size();
    submitted_ -= slot.missing;
  }
  next_ = next_ + 1 < slots_.size() ? next_ + 1 : 0;
  return {.has_vetoed = unlocking(), .ends_round = next_ == 0, .since = now};
}

void LockedSchedule::Count(const Entered& entered, Outcome outcome) {
  if (outcome == Outcome::kCarriedOut) {
    ++progress_.buckets;
    if (entered.ends_round) progress_ = {.rounds = progress_.rounds + 1, .buckets = 0};
    return;
  }
  if (!window_.is_lost()) cause_ = entered.has_vetoed ? Cause::kOwn : Cause::kOthers;
  state_ = State::kUnlocking;
}

}  // namespace ronda
