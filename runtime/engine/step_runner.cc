// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/step_runner.h"

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

void StepRunner::CheckWaits(absl::Time now) {
  schedule_.CheckWaits({.has_submissions = !parts_.queue->empty(), .is_awaited = parts_.progress->waiting() > 0}, now);
}

absl::StatusOr<std::optional<Ballot::Result>> StepRunner::RunNext(absl::Time now) {
  if (schedule_.unlock_requested()) schedule_.VetoNext();
  CheckWaits(now);
  if (schedule_.unlocking()) RequestUnlock();
  const std::optional<size_t> bucket = schedule_.Next();
  if (!bucket) return std::nullopt;
  const uint64_t rounds = schedule_.progress().rounds;
  RONDA_ASSIGN_OR_RETURN(const Ballot::Result result, Execute(*bucket));
  schedule_.Enter(result, now);
  if (result == Ballot::Result::kVetoed) {
    Unlock(now);
  } else {
    RecordCarriedOut(rounds, now);
  }
  return result;
}

absl::StatusOr<Ballot::Result> StepRunner::Execute(size_t bucket) {
  const auto when_late = [&] {
    parts_.log->Waited(buckets_[bucket]);
    RequestUnlock();
  };
  Executor::Vote vote = {.own = Ballot::Vote::kVeto, .entries = {}, .when_late = when_late};
  if (!schedule_.unlocking()) {
    vote.own = Ballot::Vote::kApprove;
    vote.entries = absl::MakeConstSpan(entries_[bucket]).first(buckets_[bucket].responses.size());
  }
  return parts_.executor->ExecuteIfAllApprove(buckets_[bucket], vote);
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
  if (schedule_.RequestUnlock()) parts_.control->CallOff(schedule_.number());
}

void StepRunner::Unlock(absl::Time now) {
  parts_.counters->schedules_left.Add();
  if (schedule_.Unlock() == Ballot::Vote::kVeto) parts_.counters->own_vetoes.Add();
  if (parts_.role != nullptr) parts_.role->Unlock(schedule_.progress(), now);
}

}  // namespace ronda
