// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/locked_schedule.h"

#include <algorithm>

#include "runtime/base/logging.h"

namespace ronda {

void LockedSchedule::Begin(const Schedule& schedule, absl::Time now) {
  RONDA_CHECK(!locked());
  buckets_.clear();
  buckets_.reserve(schedule.buckets.size());
  place_of_.clear();
  for (size_t bucket = 0; bucket < schedule.buckets.size(); ++bucket) {
    const std::vector<CacheId>& ids = schedule.buckets[bucket];
    for (size_t i = 0; i < ids.size(); ++i) {
      const StepPlace place = {.schedule = schedule.number, .bucket = bucket, .tensor = i};
      RONDA_CHECK(place_of_.emplace(ids[i], place).second);
    }
    buckets_.push_back({.tensors = ids.size(), .missing = ids.size()});
  }
  state_ = State::kFollowing;
  number_ = schedule.number;
  next_ = submitted_ = 0;
  progress_ = {};
  has_timed_out_ = false;
  lost_vote_.reset();
  began_ = now;
  awaited_ = absl::ZeroDuration();
}

void LockedSchedule::VetoNext() {
  if (locked()) state_ = State::kUnlocking;
}

Ballot::Vote LockedSchedule::Unlock() {
  RONDA_CHECK(HasToUnlock());
  state_ = State::kUnlocked;
  return *lost_vote_;
}

// --- Submissions ---

std::optional<StepPlace> LockedSchedule::Submit(std::optional<CacheId> id) {
  const auto it = id ? place_of_.find(*id) : place_of_.end();
  if (it == place_of_.end()) {
    VetoNext();
    return std::nullopt;
  }
  Count(it->second);
  return it->second;
}

bool LockedSchedule::SubmitAgain(const StepPlace& place, uint64_t version) {
  if (!locked() || place.schedule != number_ || place.version != version) return false;
  Count(place);
  return true;
}

void LockedSchedule::Count(const StepPlace& place) {
  Bucket& bucket = buckets_[place.bucket];
  RONDA_CHECK(bucket.missing > 0);
  --bucket.missing;
  ++submitted_;
}

// --- Requests to unlock ---

bool LockedSchedule::RequestUnlock() {
  if (unlock_requested_ >= number_) return false;
  unlock_requested_ = number_;
  return true;
}

void LockedSchedule::CheckWaits(Surroundings surroundings, absl::Time now) {
  if (HasToUnlock() || Next().has_value() || LacksTensors(surroundings, now)) return;
  if (!surroundings.has_submissions) {
    stuck_since_ = awaited_since_ = absl::InfiniteFuture();
  } else {
    stuck_since_ = std::min(stuck_since_, now);
    awaited_since_ = surroundings.is_awaited ? std::min(awaited_since_, now) : absl::InfiniteFuture();
  }
  if (now >= stuck_since_ + kLimit || now >= awaited_since_ + kAwaitedLimit || IsHeldUp(now)) {
    has_timed_out_ = true;
    return VetoNext();
  }
  if (now >= next_look_ || next_look_ == absl::InfiniteFuture()) next_look_ = stuck_since_ + kLimit;
}

// Returns true during most submissions of a step.
bool LockedSchedule::LacksTensors(Surroundings surroundings, absl::Time now) const {
  return stuck_since_ <= now && now < next_look_ && awaited_since_ == absl::InfiniteFuture() &&
         !surroundings.is_awaited && surroundings.has_submissions;
}

// Threads that work at different speeds wait for each other in every round. A wait in only one or two rounds may be
// chance.
bool LockedSchedule::IsHeldUp(absl::Time now) const {
  return awaited_ > kAwaitedLimit && awaited_ > (now - began_) / 2;
}

// --- Buckets ---

std::optional<size_t> LockedSchedule::Next() const {
  if (HasToUnlock() || (buckets_[next_].missing > 0 && !unlocking())) return std::nullopt;
  return next_;
}

void LockedSchedule::Enter(Ballot::Result result, absl::Time now) {
  if (awaited_since_ < now) awaited_ += now - awaited_since_;
  stuck_since_ = awaited_since_ = absl::InfiniteFuture();
  if (result == Ballot::Result::kVetoed) {
    lost_vote_ = unlocking() ? Ballot::Vote::kVeto : Ballot::Vote::kApprove;
    state_ = State::kUnlocking;
    return;
  }
  Bucket& bucket = buckets_[next_];
  RONDA_CHECK(!unlocking() && bucket.missing == 0);
  // From now on this rank may submit the bucket's tensors for the next round.
  bucket.missing = bucket.tensors;
  submitted_ -= bucket.tensors;
  next_ = next_ + 1 < buckets_.size() ? next_ + 1 : 0;
  ++progress_.buckets;
  if (next_ == 0) progress_ = {.rounds = progress_.rounds + 1, .buckets = 0};
}

}  // namespace ronda
