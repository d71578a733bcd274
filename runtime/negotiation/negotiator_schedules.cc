// SPDX-License-Identifier: Apache-2.0

// The part of the negotiator that decides when a locked schedule begins and what it contains.

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/step/flags.h"

namespace ronda {

// A report is stale if the rank sent it before the rank began the latest schedule. Stale reports are ignored, because
// the rank submits the same requests again after the unlock.
absl::StatusOr<Negotiator::Freshness> Negotiator::CheckSchedule(RankId rank, const RankReport& report) const {
  if (report.schedule < steps_.schedules()) return Freshness::kStale;
  if (report.schedule == steps_.schedules() && !locked()) return Freshness::kFresh;
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(rank), " reports after schedule ", report.schedule,
                   locked() ? ", and the job has not unlocked schedule " : ", and the last was ", steps_.schedules()));
}

void Negotiator::Watch(const Agreed& agreed) {
  const TensorRequest& request = agreed.response->request;
  if (FlagOf(request.name)) return;  // no schedule contains a flag, and a flag prevents none
  const bool by_all = request.process_set == kGlobalProcessSet && agreed.joined.empty();
  if (agreed.cached_as != 0 && by_all && CanBeScheduled(request)) {
    steps_.Release(agreed.cached_as, now_);
  } else {
    steps_.ReleaseOther();
  }
}

std::optional<Schedule> Negotiator::BeginSchedule() {
  const StepBuckets* const buckets = steps_.EndList([this](std::vector<StepTensor>& step) { DescribeStep(step); });
  if (buckets == nullptr || !OnlyTheseWait(*buckets)) return std::nullopt;
  pending_.Clear();
  return steps_.Lock(*buckets);
}

void Negotiator::DescribeStep(std::vector<StepTensor>& step) const {
  std::vector<std::shared_ptr<const Response>> kinds;  // the first tensor of each kind
  for (StepTensor& tensor : step) {
    std::shared_ptr<const Response> response = cache_.Get(tensor.id);
    RONDA_CHECK(response != nullptr);  // a response that evicts breaks the step
    const TensorRequest& request = response->request;
    tensor.bytes = TensorBytes(request);
    tensor.memory = request.memory;
    tensor.group = request.group;
    if (!TraitsOf(request.op).fuses) continue;
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const std::shared_ptr<const Response>& first) {
      return SameKind(first->request, request);
    });
    tensor.kind = static_cast<int>(kind - kinds.begin());
    if (kind == kinds.end()) kinds.push_back(std::move(response));
  }
}

// Returns true if no other tensor is waiting. If one were waiting, the ranks would unlock the new schedule immediately.
bool Negotiator::OnlyTheseWait(const StepBuckets& buckets) const {
  if (!joins_.empty() || !groups_.empty() || !ranks_.departures().empty()) return false;
  for (const Inbox& inbox : inboxes_) {
    if (!inbox.ignored.empty()) return false;
  }
  std::unordered_set<CacheId> ids;
  for (const std::vector<CacheId>& bucket : buckets) ids.insert(bucket.begin(), bucket.end());
  bool only = true;
  pending_.ForEach([&](const PendingTensor& tensor) {
    only &= ids.contains(tensor.cached_as) || FlagOf(tensor.request().name).has_value();
  });
  return only;
}

void Negotiator::Unlock(const ScheduleProgress& progress) { steps_.Unlock(progress); }

StepObserver::Planning Negotiator::PlanningOfSteps() const {
  return {.threshold = sizes_.threshold, .min_bucket_bytes = sizes_.min_bucket_bytes, .hold = options_.schedule.hold};
}

void Negotiator::SetBucketSizes(const BucketSizes& sizes) {
  sizes_ = sizes;
  steps_.SetPlanning(PlanningOfSteps());
}

}  // namespace ronda
