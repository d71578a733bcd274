// SPDX-License-Identifier: Apache-2.0

// The negotiator's part in locked schedules: when one begins, and what it looks like.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/negotiation/negotiator.h"

namespace ronda {

// A rank that sent a report before it had begun the last schedule submits the same requests again after the unlock.
absl::StatusOr<Negotiator::Freshness> Negotiator::CheckSchedule(RankId rank, const RankReport& report) const {
  if (report.schedule < schedules_) return Freshness::kStale;
  if (report.schedule == schedules_ && !locked_) return Freshness::kFresh;
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(rank), " reports after schedule ", report.schedule,
                   locked_ ? ", and the job has not unlocked schedule " : ", and the last was ", schedules_));
}

void Negotiator::Watch(const Agreed& agreed) {
  const TensorRequest& request = agreed.response->request;
  const bool by_all = request.process_set == kGlobalProcessSet && agreed.joined.empty();
  if (agreed.cached_as != 0 && by_all && CanBeScheduled(request)) {
    detector_.Release(agreed.cached_as, now_);
    memory_.Release(agreed.cached_as);
  } else {
    detector_.Break();
    memory_.ReleaseOther();
  }
}

std::optional<Schedule> Negotiator::BeginSchedule(const ScheduleMemory::Buckets* known) {
  std::optional<ScheduleMemory::Buckets> detected;
  if (known == nullptr && detector_.complete()) detected = PlanDetectedStep();
  const ScheduleMemory::Buckets* const buckets = detected ? &*detected : known;
  if (buckets == nullptr) return std::nullopt;
  std::unordered_set<CacheId> ids;
  for (const std::vector<CacheId>& bucket : *buckets) ids.insert(bucket.begin(), bucket.end());
  if (!OnlyTheseWait(ids)) return std::nullopt;
  memory_.Begin(*buckets);
  pending_.Clear();
  locked_ = true;
  return Schedule{.number = ++schedules_, .buckets = *buckets};
}

// Returns nullopt if no schedule is possible for the step.
std::optional<ScheduleMemory::Buckets> Negotiator::PlanDetectedStep() {
  std::vector<StepTensor> step;
  for (ScheduleDetector::Tensor& tensor : detector_.step()) {
    std::shared_ptr<const Response> response = cache_.Get(tensor.id);
    RONDA_CHECK(response != nullptr);  // a response that evicts breaks the step
    step.push_back({tensor.id, tensor.ready, std::move(tensor.batches), std::move(response)});
  }
  const SchedulePlanner planner(
      {.threshold = sizes_.threshold, .min_bucket_bytes = sizes_.min_bucket_bytes, .hold = options_.schedule.hold});
  auto buckets = planner.Plan(step);
  if (!buckets) detector_.Break();
  return buckets;
}

// If anything else waited, the ranks would unlock the schedule at once.
bool Negotiator::OnlyTheseWait(const std::unordered_set<CacheId>& ids) const {
  if (!joins_.empty() || !groups_.empty() || !ranks_.departures().empty()) return false;
  for (const Inbox& inbox : inboxes_) {
    if (!inbox.ignored.empty()) return false;
  }
  bool only = true;
  pending_.ForEach([&](const PendingTensor& tensor) { only &= ids.contains(tensor.cached_as); });
  return only;
}

void Negotiator::Unlock(const ScheduleProgress& progress) {
  RONDA_CHECK(locked_);
  locked_ = false;
  detector_.Unlocked(progress.rounds);
  memory_.Unlocked(progress);
}

void Negotiator::SetBucketSizes(const BucketSizes& sizes) {
  sizes_ = sizes;
  memory_.Clear();
}

}  // namespace ronda
