#include "runtime/monitor/jobs/job_watch.h"

#include <algorithm>

#include "absl/time/time.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {
namespace {

// Of the time that a search has taken, the least until the next one.
constexpr int kRest = 500;
constexpr absl::Duration kLeastRest = absl::Milliseconds(200);

}  // namespace

void JobWatch::Look(FlightTime now) {
  if (!is_complete_ && now >= next_search_) Search(now);
  if (sampler_.has_value()) sampler_->Sample(now);
}

void JobWatch::Search(FlightTime now) {
  const FlightTime begin = FlightNow();
  std::vector<std::unique_ptr<RankReader>> found = FindRanksOf(job_);
  next_search_ = now + std::max(kLeastRest, kRest * (FlightNow() - begin));
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
