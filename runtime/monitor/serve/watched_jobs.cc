#include "runtime/monitor/serve/watched_jobs.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"

namespace ronda {

void WatchedJobs::Sample(FlightTime now) {
  if (IsDue(now)) Search(now);
  for (auto& [name, job] : jobs_) job.sampler->Sample(now);
  // The sampler, too, looks at processes once a second.
  if (now - looked_ < absl::Seconds(1)) return;
  looked_ = now;
  std::erase_if(jobs_, [](const auto& job) {
    const JobSnapshot snapshot = job.second.sampler->Snapshot();
    return std::none_of(snapshot.ranks.begin(), snapshot.ranks.end(),
                        [](const RankSnapshot& rank) { return rank.is_alive; });
  });
}

absl::Duration WatchedJobs::NextPeriod() const {
  absl::Duration shortest = JobSampler::kLongestPeriod;
  for (const auto& [name, job] : jobs_) shortest = std::min(shortest, job.sampler->NextPeriod());
  return shortest;
}

bool WatchedJobs::IsDue(FlightTime now) const {
  if (now - searched_ < rest_) return false;
  const bool is_complete = std::all_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return job.second.ranks.size() >= job.second.expected || now - job.second.since > kStart;
  });
  if (jobs_.empty() || !is_complete) return now - searched_ >= kSearchSoon;
  return beginning_.empty() && now - searched_ >= kSearchSeldom;
}

void WatchedJobs::Search(FlightTime now) {
  const FlightTime begin = stopwatch_();
  FoundRanks found = finder_();
  searched_ = now;
  rest_ = ++searches_ <= kEagerSearches ? absl::ZeroDuration() : kRest * (stopwatch_() - begin);
  for (std::string& problem : found.problems) {
    if (known_problems_.insert(problem).second) problems_.push_back(std::move(problem));
  }
  std::map<std::string, std::vector<std::unique_ptr<RankReader>>> by_job;
  for (std::unique_ptr<RankReader>& rank : found.ranks) {
    if (absl::StartsWith(rank->identity().job, beginning_)) by_job[rank->identity().job].push_back(std::move(rank));
  }
  for (auto& [name, readers] : by_job) Take(std::move(readers), now, &jobs_[name]);
}

// A rank that is new is one more to compare the others with: they are watched anew. Ranks that have ended stay.
void WatchedJobs::Take(std::vector<std::unique_ptr<RankReader>> readers, FlightTime now, Job* job) {
  std::set<std::pair<RankId, pid_t>> ranks;
  for (const std::unique_ptr<RankReader>& reader : readers) {
    const RankIdentity& identity = reader->identity();
    ranks.emplace(identity.topology.rank, identity.process.pid);
  }
  if (job->sampler == nullptr) job->since = now;
  if (std::includes(job->ranks.begin(), job->ranks.end(), ranks.begin(), ranks.end())) return;
  job->expected = static_cast<size_t>(readers.front()->identity().topology.local_size);
  job->ranks = std::move(ranks);
  job->sampler = std::make_unique<JobSampler>(std::move(readers));
}

std::vector<JobSnapshot> WatchedJobs::Snapshots() const {
  std::vector<JobSnapshot> snapshots;
  for (const auto& [name, job] : jobs_) snapshots.push_back(job.sampler->Snapshot());
  return snapshots;
}

}  // namespace ronda
