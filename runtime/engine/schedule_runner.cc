#include "runtime/engine/schedule_runner.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Longer than the parts of a backward pass between two tensors of a bucket usually take. Leaving too early costs a few
// negotiated steps.
constexpr absl::Duration kPatience = absl::Seconds(1);
// If a thread sleeps until something is complete, it may well be the one that is to submit what is missing.
constexpr absl::Duration kPatienceOfWaiters = absl::Milliseconds(20);

// How often a thread that waits asks the device for a vote before it sleeps. To be woken, by two other threads, takes
// about as long, and with small buckets the device would stand still for it.
constexpr int kAskedBeforeSleep = 200;

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
  BeginIfNew(now);
  RONDA_RETURN_IF_ERROR(SettleOpen(now));
  if (called_off_ >= lock.number()) lock.Leave();
  CheckPatience(now);
  if (lock.leaving() || now >= OpenDeadline()) CallOff(lock.number());
  if (window_.HasToLeave()) {
    LeaveNow(now);
    return Outcome::kLeft;
  }
  const AgreedBucket* const bucket = window_.MayEnter() ? lock.Next() : nullptr;
  if (bucket != nullptr) return Enter(*bucket, now);
  return IsLikelySoon() ? Outcome::kSoon : Outcome::kNotReady;
}

bool ScheduleRunner::IsLikelySoon() {
  if (open_.empty() || parts_.driver->waiting() == 0) return false;
  if (std::exchange(asked_at_, settled_) != settled_) asked_ = 0;
  if (asked_ >= kAskedBeforeSleep) return false;
  ++asked_;
  std::this_thread::yield();
  return true;
}

void ScheduleRunner::BeginIfNew(absl::Time now) {
  const uint64_t number = parts_.reporter->lock()->number();
  if (std::exchange(number_, number) == number) return;
  began_ = now;
  awaited_ = absl::ZeroDuration();
  window_ = VoteWindow(kOpenVotes);
  rounds_ = 0;
}

absl::StatusOr<ScheduleRunner::Outcome> ScheduleRunner::Enter(const AgreedBucket& bucket, absl::Time now) {
  ScheduleLock& lock = *parts_.reporter->lock();
  if (awaited_since_ < now) awaited_ += now - awaited_since_;
  stuck_since_ = awaited_since_ = absl::InfiniteFuture();
  const Ballot::Vote own = lock.leaving() ? Ballot::Vote::kVeto : Ballot::Vote::kApprove;
  RONDA_ASSIGN_OR_RETURN(const Ballot::Result result, Execute(bucket));
  if (result == Ballot::Result::kVetoed) {
    NoteVeto(own);
    window_.Enter(VoteWindow::Outcome::kVetoed);
    if (!window_.HasToLeave()) return Outcome::kCarriedOut;
    LeaveNow(now);
    return Outcome::kLeft;
  }
  const uint64_t rounds = lock.rounds();
  if (own == Ballot::Vote::kApprove) {
    lock.Advance();
  } else {
    lock.Skip();
  }
  const bool ends_round = lock.rounds() > rounds;
  if (result == Ballot::Result::kCarriedOut) {
    window_.Enter(VoteWindow::Outcome::kCarriedOut);
    NoteCarriedOut(ends_round, now);
  } else {
    window_.EnterOpen();
    open_.push_back({.bucket = parts_.executor->TakeOpen(), .own = own, .ends_round = ends_round, .since = now});
  }
  return Outcome::kCarriedOut;
}

void ScheduleRunner::NoteCarriedOut(bool ends_round, absl::Time now) {
  parts_.counters->buckets_scheduled.Add();
  if (ends_round) EndRound(now);
}

absl::Status ScheduleRunner::SettleOpen(absl::Time now) {
  while (IsOpenOver()) {
    Open& first = open_.front();
    switch (first.bucket.vote->outcome()) {
      case OpenVote::Outcome::kOpen: {
        const absl::Status& status = first.bucket.completion->status();
        return status.ok() ? absl::InternalError("the device has carried out a bucket without counting its votes")
                           : status;
      }
      case OpenVote::Outcome::kCarriedOut:
        window_.Settle(VoteWindow::Outcome::kCarriedOut);
        parts_.executor->Complete(first.bucket);
        NoteCarriedOut(first.ends_round, now);
        break;
      case OpenVote::Outcome::kVetoed:
        NoteVeto(first.own);
        window_.Settle(VoteWindow::Outcome::kVetoed);
        break;
    }
    open_.pop_front();
    ++settled_;
  }
  return absl::OkStatus();
}

bool ScheduleRunner::IsOpenOver() const {
  if (open_.empty()) return false;
  const Executor::OpenBucket& first = open_.front().bucket;
  // In this order: when the device is done with the bucket it has counted the votes.
  return first.completion->done() || first.vote->outcome() != OpenVote::Outcome::kOpen;
}

void ScheduleRunner::NoteVeto(Ballot::Vote own) {
  if (!window_.is_lost()) own_vote_ = own;
  Leave();
}

absl::StatusOr<Ballot::Result> ScheduleRunner::Execute(const AgreedBucket& bucket) {
  const ScheduleLock& lock = *parts_.reporter->lock();
  const auto call_off = [&] {
    parts_.log->Waited(bucket);
    CallOff(lock.number());
  };
  if (lock.leaving()) {
    return parts_.executor->ExecuteIfAllStay(bucket,
                                             {.own = Ballot::Vote::kVeto, .entries = {}, .when_late = call_off});
  }
  const auto entries = absl::MakeConstSpan(entries_[lock.next_place()]).first(bucket.responses.size());
  return parts_.executor->ExecuteIfAllStay(bucket,
                                           {.own = Ballot::Vote::kApprove, .entries = entries, .when_late = call_off});
}

void ScheduleRunner::EndRound(absl::Time now) {
  ++rounds_;
  parts_.log->Cycled();
  parts_.counters->schedule_rounds.Add();
  if (parts_.role == nullptr) return;
  parts_.role->EndRound(now);
  if (parts_.role->wants_to_leave()) Leave();
}

void ScheduleRunner::CheckPatience(absl::Time now) {
  if (ready() || WaitsOn(now)) return;
  // What waits for the device will have moved on by itself.
  if (parts_.queue->empty() || !open_.empty()) {
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

absl::Time ScheduleRunner::NextDeadline() const {
  return std::min({next_look_, awaited_since_ + kPatienceOfWaiters, OpenDeadline()});
}

// The others are waited for on the device, where nobody can say so.
absl::Time ScheduleRunner::OpenDeadline() const {
  if (open_.empty() || called_off_ >= parts_.reporter->lock()->number()) return absl::InfiniteFuture();
  const WaitLimits& limits = parts_.executor->limits();
  return open_.front().since + std::min(limits.warning, limits.deadline);
}

void ScheduleRunner::CallOff(uint64_t schedule) {
  if (called_off_ >= schedule) return;
  called_off_ = schedule;
  parts_.control->CallOff(schedule);
}

void ScheduleRunner::LeaveNow(absl::Time now) {
  parts_.counters->schedules_left.Add();
  if (own_vote_ == Ballot::Vote::kVeto) parts_.counters->own_vetoes.Add();
  if (parts_.role != nullptr) parts_.role->LeaveSchedule(rounds_, now);
  parts_.reporter->LeaveSchedule();
}

}  // namespace ronda
