#include "runtime/engine/schedule_runner.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
bool ScheduleRunner::NoteCallOff(uint64_t schedule) {
  schedule_.NoteCallOff(schedule);
  return schedule_.called_off();
}

bool ScheduleRunner::SubmitAgain(const TensorEntry& entry) {
  const TensorEntry::Scheduled& known = entry.scheduled;
  if (!locked() || known.schedule != schedule_.number() || known.version != entry.version) return false;
  schedule_.SubmitAgain(known.position);
  return true;
}

void ScheduleRunner::Submit(TensorEntry& entry, std::optional<CacheId> id) {
  const std::optional<LockedSchedule::Position> position = schedule_.Submit(id);
  if (!position) return;
  if (position->bucket >= entries_.size()) entries_.resize(position->bucket + 1);
  std::vector<const TensorEntry*>& bucket = entries_[position->bucket];
  if (position->tensor >= bucket.size()) bucket.resize(position->tensor + 1);
  bucket[position->tensor] = &entry;
  entry.scheduled = {.schedule = schedule_.number(), .version = entry.version, .position = *position};
}

void ScheduleRunner::CheckPatience(absl::Time now) {
  schedule_.CheckPatience({.has_submissions = !parts_.queue->empty(), .is_awaited = parts_.progress->waiting() > 0},
                          now);
}

absl::StatusOr<ScheduleRunner::Outcome> ScheduleRunner::RunNext(absl::Time now) {
  const bool has_settled = IsOpenOver();
  RONDA_RETURN_IF_ERROR(SettleOpen(now));
  if (schedule_.called_off()) schedule_.RequestUnlock();
  CheckPatience(now);
  if (schedule_.unlocking() || now >= OpenDeadline()) CallOff();
  if (schedule_.HasToUnlock()) return Unlock(now);
  if (IsStuckBehindVeto()) {
    schedule_.RequestUnlock();
    CallOff();
  }
  if (const AgreedBucket* const bucket = Next()) return Enter(*bucket, now);
  NoteDemand();
  return has_settled ? Outcome::kCarriedOut : Outcome::kNotReady;
}

const AgreedBucket* ScheduleRunner::Next() const {
  const AgreedBucket* const bucket = schedule_.Next();
  return bucket == nullptr || schedule_.unlocking() || MayGive(*bucket) ? bucket : nullptr;
}

bool ScheduleRunner::MayGive(const AgreedBucket& bucket) const {
  const auto entries = EntriesOfNext(bucket);
  return std::all_of(entries.begin(), entries.end(),
                     [this](const TensorEntry* entry) { return parts_.executor->MayGive(*entry); });
}

bool ScheduleRunner::IsStuckBehindVeto() const {
  return !schedule_.has_open() && !schedule_.unlocking() && schedule_.Next() != nullptr && Next() == nullptr;
}

absl::Span<const TensorEntry* const> ScheduleRunner::EntriesOfNext(const AgreedBucket& bucket) const {
  return absl::MakeConstSpan(entries_[schedule_.next_bucket()]).first(bucket.responses.size());
}

void ScheduleRunner::NoteDemand() {
  const bool waits = locked() && schedule_.has_open() &&
                     (parts_.queue->has_followers() || parts_.progress->waiting() > 0 || schedule_.Next() != nullptr);
  if (std::exchange(demands_, waits) == waits) return;
  if (waits) {
    parts_.executor->BeginDemand();
  } else {
    parts_.executor->EndDemand();
  }
}

absl::StatusOr<ScheduleRunner::Outcome> ScheduleRunner::Enter(const AgreedBucket& bucket, absl::Time now) {
  const uint64_t rounds = schedule_.progress().rounds;
  RONDA_ASSIGN_OR_RETURN(Executor::Voted voted, Execute(bucket));
  switch (voted.result) {
    case Ballot::Result::kCarriedOut:
      schedule_.Enter(LockedSchedule::Outcome::kCarriedOut, now);
      NoteCarriedOut(rounds, now);
      break;
    case Ballot::Result::kOpen:
      schedule_.EnterOpen(now);
      open_.push_back(std::move(voted.open));
      break;
    case Ballot::Result::kVetoed:
      schedule_.Enter(LockedSchedule::Outcome::kVetoed, now);
      if (schedule_.HasToUnlock()) return Unlock(now);
      break;
  }
  return Outcome::kCarriedOut;
}

absl::StatusOr<Executor::Voted> ScheduleRunner::Execute(const AgreedBucket& bucket) {
  const auto call_off = [&] {
    parts_.log->Waited(bucket);
    CallOff();
  };
  Executor::Vote vote = {.own = Ballot::Vote::kVeto, .entries = {}, .when_late = call_off};
  if (!schedule_.unlocking()) {
    vote.own = Ballot::Vote::kApprove;
    vote.entries = EntriesOfNext(bucket);
  }
  return parts_.executor->ExecuteIfAllApprove(bucket, vote);
}

void ScheduleRunner::NoteCarriedOut(uint64_t rounds_before, absl::Time now) {
  parts_.counters->buckets_scheduled.Add();
  if (schedule_.progress().rounds == rounds_before) return;
  parts_.log->Cycled();
  parts_.counters->schedule_rounds.Add();
  if (parts_.role == nullptr) return;
  parts_.role->EndRound(now);
  if (parts_.role->wants_to_unlock()) schedule_.RequestUnlock();
}

absl::Status ScheduleRunner::SettleOpen(absl::Time now) {
  while (IsOpenOver()) {
    Executor::OpenBucket& first = open_.front();
    const uint64_t rounds = schedule_.progress().rounds;
    switch (first.vote->outcome()) {
      case OpenVote::Outcome::kOpen: {
        const absl::Status& status = first.completion->status();
        return status.ok() ? absl::InternalError("the device has carried out a bucket without counting its votes")
                           : status;
      }
      case OpenVote::Outcome::kCarriedOut:
        schedule_.Settle(LockedSchedule::Outcome::kCarriedOut);
        RONDA_RETURN_IF_ERROR(parts_.executor->Complete(first));
        NoteCarriedOut(rounds, now);
        break;
      case OpenVote::Outcome::kVetoed:
        schedule_.Settle(LockedSchedule::Outcome::kVetoed);
        parts_.executor->NoteVeto(first);
        break;
    }
    open_.pop_front();
  }
  return absl::OkStatus();
}

bool ScheduleRunner::IsOpenOver() const {
  if (open_.empty()) return false;
  const Executor::OpenBucket& first = open_.front();
  // The watch settles it also after an error of the device.
  return first.vote->outcome() != OpenVote::Outcome::kOpen || first.completion->is_settled();
}

// The other ranks are waited for on the device, where no host code can say that they are late.
absl::Time ScheduleRunner::OpenDeadline() const {
  if (!schedule_.has_open() || schedule_.called_off()) return absl::InfiniteFuture();
  const WaitLimits& limits = parts_.executor->limits();
  return schedule_.oldest_open_since() + std::min(limits.warning, limits.deadline);
}

void ScheduleRunner::CallOff() {
  if (schedule_.CallOff()) parts_.control->CallOff(schedule_.number());
}

ScheduleRunner::Outcome ScheduleRunner::Unlock(absl::Time now) {
  parts_.counters->schedules_left.Add();
  NoteDemand();
  if (schedule_.Unlock() == LockedSchedule::Cause::kOwn) parts_.counters->own_vetoes.Add();
  if (parts_.role != nullptr) parts_.role->Unlock(schedule_.progress(), now);
  return Outcome::kUnlocked;
}

}  // namespace ronda
