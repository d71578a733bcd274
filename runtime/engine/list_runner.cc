// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/list_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<std::optional<ListRunner::End>> ListRunner::RunNext() {
  if (!begun_) {
    RONDA_RETURN_IF_ERROR(Begin(lists_.front()));
    lists_.pop_front();
  } else {
    parts_.counters->buckets_agreed.Add();
    RONDA_RETURN_IF_ERROR(parts_.executor->Execute(begun_->work.buckets[begun_->next_bucket++]));
  }
  if (begun_->has_buckets()) return std::nullopt;
  End end{.job = begun_->work.job, .schedule = std::move(begun_->work.schedule)};
  begun_.reset();
  return end;
}

absl::Status ListRunner::Begin(const std::string& list) {
  RONDA_ASSIGN_OR_RETURN(const ResponseList decoded, DecodeResponseList(list, parts_.reporter->cache_capacity()));
  RONDA_ASSIGN_OR_RETURN(Reporter::Work work, parts_.reporter->Apply(decoded));
  begun_.emplace(Begun{.work = std::move(work)});
  if (begun_->work.settings) parts_.apply_settings(*begun_->work.settings);
  for (const ReceiveMatch& match : begun_->work.matches) RONDA_RETURN_IF_ERROR(parts_.queue->Match(match));
  for (const TensorError& error : begun_->work.errors) RONDA_RETURN_IF_ERROR(Answer(error));
  if (begun_->has_buckets()) parts_.log->Cycled();
  Log(begun_->work.buckets);
  return absl::OkStatus();
}

absl::Status ListRunner::Answer(const TensorError& error) {
  const TensorEntry* entry = parts_.queue->Find(error.key());
  if (entry == nullptr) {
    return absl::InternalError(
        absl::StrCat("the coordinator rank answers tensor '", error.name, "', which was not submitted on this rank"));
  }
  parts_.log->Failed(entry->submission.request);
  parts_.queue->Complete(entry, AboutCall(entry->submission, error.status));
  return absl::OkStatus();
}

void ListRunner::Log(const std::vector<AgreedBucket>& buckets) {
  for (const AgreedBucket& bucket : buckets) {
    if (bucket.members->Contains(parts_.rank)) parts_.log->Agreed(bucket);
  }
}

}  // namespace ronda
