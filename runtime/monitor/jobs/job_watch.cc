#include "runtime/monitor/jobs/job_watch.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/time/time.h"

namespace ronda {
namespace {

// The time until the next search: at first the least, later so many times as long as the search has taken.
constexpr absl::Duration kLeastRest = absl::Milliseconds(200);
constexpr int kEagerSearches = 20;
constexpr int kRest = 500;

}  // namespace

void JobWatch::Look(FlightTime now) {
  if (!is_complete_ && now >= next_search_) Search(now);
  if (sampler_.has_value()) sampler_->Sample(now);
}

void JobWatch::Search(FlightTime now) {
  const FlightTime begin = FlightNow();
  std::vector<std::unique_ptr<RankReader>> found = FindRanks(is_one_);
  const int rest = ++searches_ <= kEagerSearches ? 0 : kRest;
  next_search_ = now + std::max(kLeastRest, rest * (FlightNow() - begin));
  if (found.size() <= ranks_) return;
  ranks_ = found.size();
  is_complete_ = ranks_ >= static_cast<size_t>(found.front()->identity().topology.local_size);
  sampler_.emplace(std::move(found));
}

std::optional<JobSnapshot> JobWatch::Snapshot() const {
  if (!sampler_.has_value()) return std::nullopt;
  return sampler_->Snapshot();
}

}  // namespace ronda
