#include "runtime/engine/schedule_runner.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Longer than the parts of a backward pass between two tensors of a bucket usually take. Leaving too early costs a few
// negotiated steps.
constexpr absl::Duration kPatience = absl::Seconds(1);
// If a thread sleeps until something is complete, it may well be the one that is to submit what is missing.
constexpr absl::Duration kPatienceOfWaiters = absl::Milliseconds(20);

}  // namespace

bool ScheduleRunner::CalledOff(uint64_t schedule) {
  called_off_ = std::max(called_off_, schedule);
  return locked() && called_off_ >= parts_.reporter->lock()->number();
}

void ScheduleRunner::Leave() {
  if (locked()) parts_.reporter->lock()->Leave();
}

bool ScheduleRunner::SubmitAgain(const TensorEntry& entry) {
  const TensorEntry::Scheduled& known = entry.scheduled;
  if (!locked() || known.schedule != parts_.reporter->lock()->number() || known.version != entry.version) return false;
  parts_.reporter->lock()->SubmitAgain(known.place);
  return true;
}

void ScheduleRunner::Remember(const TensorEntry& entry, ScheduleLock::Place place) {
  if (place.bucket >= entries_.size()) entries_.resize(place.bucket + 1);
  std::vector<const TensorEntry*>& bucket = entries_[place.bucket];
  if (place.tensor >= bucket.size()) bucket.resize(place.tensor + 1);
  bucket[place.tensor] = &entry;
  entry.scheduled = {.schedule = parts_.reporter->lock()->number(), .version = entry.version, .place = place};
}

absl::StatusOr<ScheduleRunner::Outcome> ScheduleRunner::RunNext(absl::Time now) {
  ScheduleLock& lock = *parts_.reporter->lock();
  if (std::exchange(number_, lock.number()) != lock.number()) {
    began_ = now;
    awaited_ = absl::ZeroDuration();
  }
  if (called_off_ >= lock.number()) lock.Leave();
  CheckPatience(now);
  if (lock.leaving()) CallOff(lock.number());
  const AgreedBucket* const bucket = lock.Next();
  if (bucket == nullptr) return Outcome::kNotReady;
  if (awaited_since_ < now) awaited_ += now - awaited_since_;
  stuck_since_ = awaited_since_ = absl::InfiniteFuture();
  RONDA_ASSIGN_OR_RETURN(const Ballot::Result result, Execute(*bucket));
  if (result == Ballot::Result::kVetoed) {
    LeaveNow(now);
    return Outcome::kLeft;
  }
  const uint64_t rounds = lock.rounds();
  lock.Advance();
  parts_.counters->buckets_scheduled.Add();
  if (lock.rounds() > rounds) EndRound(now);
  return Outcome::kCarriedOut;
}

absl::StatusOr<Ballot::Result> ScheduleRunner::Execute(const AgreedBucket& bucket) {
  const ScheduleLock& lock = *parts_.reporter->lock();
  const auto call_off = [&] { CallOff(lock.number()); };
  if (lock.leaving()) {
    return parts_.executor->ExecuteIfAllStay(bucket,
                                             {.own = Ballot::Vote::kLeave, .entries = {}, .when_late = call_off});
  }
  const auto entries = absl::MakeConstSpan(entries_[lock.next_place()]).first(bucket.responses.size());
  return parts_.executor->ExecuteIfAllStay(bucket,
                                           {.own = Ballot::Vote::kStay, .entries = entries, .when_late = call_off});
}

void ScheduleRunner::EndRound(absl::Time now) {
  parts_.counters->schedule_rounds.Add();
  if (parts_.role == nullptr) return;
  parts_.role->EndRound(now);
  if (parts_.role->wants_to_leave()) Leave();
}

void ScheduleRunner::CheckPatience(absl::Time now) {
  if (ready() || WaitsOn(now)) return;
  if (parts_.queue->empty()) {
    stuck_since_ = awaited_since_ = absl::InfiniteFuture();
  } else {
    stuck_since_ = std::min(stuck_since_, now);
    awaited_since_ = parts_.driver->waiting() > 0 ? std::min(awaited_since_, now) : absl::InfiniteFuture();
  }
  if (now >= stuck_since_ + kPatience || now >= awaited_since_ + kPatienceOfWaiters || HoldsUp(now)) return Leave();
  if (now >= next_look_ || next_look_ == absl::InfiniteFuture()) next_look_ = stuck_since_ + kPatience;
}

// While a step's tensors are submitted, this is so for most of them.
bool ScheduleRunner::WaitsOn(absl::Time now) const {
  return stuck_since_ <= now && now < next_look_ && awaited_since_ == absl::InfiniteFuture() &&
         parts_.driver->waiting() == 0 && !parts_.queue->empty();
}

// Threads that work at different paces wait for each other in every round. A round or two of that may be chance.
bool ScheduleRunner::HoldsUp(absl::Time now) const {
  return awaited_ > kPatienceOfWaiters && awaited_ > (now - began_) / 2;
}

absl::Time ScheduleRunner::NextDeadline() const { return std::min(next_look_, awaited_since_ + kPatienceOfWaiters); }

void ScheduleRunner::CallOff(uint64_t schedule) {
  if (called_off_ >= schedule) return;
  called_off_ = schedule;
  parts_.control->CallOff(schedule);
}

void ScheduleRunner::LeaveNow(absl::Time now) {
  const ScheduleLock& lock = *parts_.reporter->lock();
  parts_.counters->schedules_left.Add();
  if (lock.leaving()) parts_.counters->own_vetoes.Add();
  if (parts_.role != nullptr) parts_.role->LeaveSchedule(lock.rounds(), now);
  parts_.reporter->LeaveSchedule();
}

}  // namespace ronda
