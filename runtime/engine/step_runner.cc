// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/step_runner.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {

void StepRunner::Begin(ResolvedSchedule resolved, absl::Time now) {
  schedule_.Begin(resolved.schedule, now);
  buckets_ = std::move(resolved.buckets);
}

bool StepRunner::RecordUnlockRequest(uint64_t schedule) {
  schedule_.RecordUnlockRequest(schedule);
  return schedule_.unlock_requested();
}

void StepRunner::Submit(TensorEntry& entry, std::optional<CacheId> id) {
  const std::optional<StepPlace> place = schedule_.Submit(id);
  if (!place) return;
  if (place->bucket >= entries_.size()) entries_.resize(place->bucket + 1);
  std::vector<const TensorEntry*>& bucket = entries_[place->bucket];
  if (place->tensor >= bucket.size()) bucket.resize(place->tensor + 1);
  bucket[place->tensor] = &entry;
  entry.step_place = *place;
  entry.step_place.version = entry.version;
}

bool StepRunner::SubmitFlag(const TensorEntry& entry) {
  const std::optional<int> flag = FlagOf(entry.submission.request.name);
  if (flag) flags_[static_cast<size_t>(*flag)] = &entry;
  return flag.has_value();
}

size_t StepRunner::flags() const {
  return flags_.size() - static_cast<size_t>(std::count(flags_.begin(), flags_.end(), nullptr));
}

// A flag can wait until the next training step, unless a thread of the program waits for it.
void StepRunner::CheckWaits(absl::Time now) {
  const bool is_awaited = parts_.progress->waiting() > 0;
  const size_t can_wait = is_awaited ? 0 : flags();
  schedule_.CheckWaits({.has_submissions = parts_.queue->size() > can_wait, .is_awaited = is_awaited}, now);
}

absl::StatusOr<std::optional<Ballot::Result>> StepRunner::RunNext(absl::Time now) {
  if (schedule_.unlock_requested()) schedule_.VetoNext();
  CheckWaits(now);
  if (schedule_.unlocking()) RequestUnlock();
  const std::optional<size_t> bucket = schedule_.Next();
  if (!bucket) return std::nullopt;
  const uint64_t rounds = schedule_.progress().rounds;
  RONDA_ASSIGN_OR_RETURN(const Executor::Decision decision, Execute(*bucket));
  schedule_.Enter(decision.result, now);
  if (decision.result == Ballot::Result::kVetoed) {
    Unlock(now);
  } else {
    CompleteFlags(decision.flags);
    RecordCarriedOut(rounds, now);
  }
  return decision.result;
}

absl::StatusOr<Executor::Decision> StepRunner::Execute(size_t bucket) {
  const auto when_late = [&] {
    parts_.log->Waited(buckets_[bucket]);
    RequestUnlock();
  };
  Executor::Vote vote = {.own = Ballot::Vote::kVeto, .entries = {}, .flags = OwnFlags(), .when_late = when_late};
  if (!schedule_.unlocking()) {
    vote.own = Ballot::Vote::kApprove;
    vote.entries = absl::MakeConstSpan(entries_[bucket]).first(buckets_[bucket].responses.size());
  }
  return parts_.executor->ExecuteIfAllApprove(buckets_[bucket], vote);
}

Flags StepRunner::OwnFlags() const {
  Flags own;
  for (size_t flag = 0; flag < flags_.size(); ++flag) {
    if (flags_[flag] == nullptr) continue;
    const auto bit = static_cast<uint8_t>(1 << flag);
    const bool is_raised = *static_cast<const uint8_t*>(flags_[flag]->submission.input) != 0;
    own.submitted |= bit;
    if (is_raised) own.raised |= bit;
  }
  return own;
}

void StepRunner::CompleteFlags(const Flags& flags) {
  for (size_t flag = 0; flag < flags_.size(); ++flag) {
    if ((flags.submitted >> flag & 1) == 0) continue;
    const TensorEntry* const entry = std::exchange(flags_[flag], nullptr);
    *static_cast<uint8_t*>(entry->submission.output) = flags.raised >> flag & 1;
    parts_.queue->Complete(entry, absl::OkStatus());
  }
}

void StepRunner::RecordCarriedOut(uint64_t rounds_before, absl::Time now) {
  parts_.counters->buckets_scheduled.Add();
  if (schedule_.progress().rounds == rounds_before) return;
  parts_.log->Cycled();
  parts_.counters->schedule_rounds.Add();
  if (parts_.role == nullptr) return;
  parts_.role->EndRound(now);
  if (parts_.role->wants_to_unlock()) schedule_.VetoNext();
}

void StepRunner::RequestUnlock() {
  if (schedule_.RequestUnlock()) parts_.control->RequestUnlock(schedule_.number());
}

void StepRunner::Unlock(absl::Time now) {
  flags_ = {};  // they are negotiated, like all that is in flight
  parts_.counters->schedules_left.Add();
  if (schedule_.Unlock() == Ballot::Vote::kVeto) parts_.counters->own_vetoes.Add();
  if (parts_.role != nullptr) parts_.role->Unlock(schedule_.progress(), now);
}

}  // namespace ronda
