// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/watched_jobs.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/config.h"

namespace ronda {

void WatchedJobs::Sample(FlightTime now) {
  search_period_ = SearchPeriod(now);
  if (now - searched_ >= std::max(search_period_, rest_)) Search(now);
  for (auto& [name, job] : jobs_) job.sampler->Sample(now, job.others);
  search_period_ = SearchPeriod(now);  // for NextPeriod, because ranks may have ended
}

void WatchedJobs::Tell(OtherHost other) {
  const auto job = jobs_.find(other.job);
  if (job == jobs_.end()) return;
  OtherHost& place = job->second.others[other.address];
  place = std::move(other);
}

void WatchedJobs::ForgetEnded() {
  std::erase_if(jobs_, [](const auto& job) { return job.second.sampler->living() == 0; });
}

std::vector<JobSnapshot> WatchedJobs::TakeEndedEpochs() {
  std::map<std::string, int64_t> newest;
  for (const auto& [name, job] : jobs_) {
    const JobInEpoch of = SplitName(name);
    newest[of.job_id] = std::max(newest[of.job_id], of.epoch);
  }
  std::vector<JobSnapshot> ended;
  std::erase_if(jobs_, [&](const auto& job) {
    const JobInEpoch of = SplitName(job.first);
    if (of.epoch == newest[of.job_id] || job.second.sampler->living() > 0) return false;
    ended.push_back(job.second.sampler->Snapshot());
    return true;
  });
  return ended;
}

absl::Duration WatchedJobs::NextPeriod() const {
  absl::Duration shortest = std::min(JobSampler::kLongestPeriod, search_period_);
  for (const auto& [name, job] : jobs_) shortest = std::min(shortest, job.sampler->NextPeriod());
  return shortest;
}

absl::Duration WatchedJobs::SearchPeriod(FlightTime now) const {
  const auto may_come = [&](const auto& job) {
    return job.second.sampler->living() < job.second.expected && now - job.second.since <= kStart;
  };
  const bool is_over =
      std::all_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job.second.sampler->living() == 0; });
  if (is_over || std::any_of(jobs_.begin(), jobs_.end(), may_come)) {
    return searches_ < kEagerSearches ? kSearchAtStart : kSearchSoon;
  }
  return options_.search == Options::Search::kAlways ? kSearchSeldom : absl::InfiniteDuration();
}

void WatchedJobs::Search(FlightTime now) {
  const FlightTime begin = options_.stopwatch();
  FoundRanks found = options_.find();
  searched_ = now;
  rest_ = ++searches_ <= kEagerSearches ? absl::ZeroDuration() : kRest * (options_.stopwatch() - begin);
  for (std::string& problem : found.problems) {
    if (known_problems_.insert(problem).second) problems_.push_back(std::move(problem));
  }
  std::map<std::string, std::vector<std::unique_ptr<RankReader>>> by_job;
  for (std::unique_ptr<RankReader>& rank : found.ranks) {
    if (options_.is_watched(rank->identity())) by_job[rank->identity().job].push_back(std::move(rank));
  }
  for (auto& [name, readers] : by_job) Watch(std::move(readers), now, &jobs_[name]);
}

void WatchedJobs::Watch(std::vector<std::unique_ptr<RankReader>> readers, FlightTime now, Job* job) {
  const auto is_known = [&](const std::unique_ptr<RankReader>& reader) {
    return job->sampler->Watches(reader->identity());
  };
  if (job->sampler != nullptr && std::all_of(readers.begin(), readers.end(), is_known)) return;
  job->since = now;
  job->expected = static_cast<size_t>(readers.front()->identity().topology.local_size);
  job->sampler = std::make_unique<JobSampler>(std::move(readers));
  // If new ranks have appeared, the job's other ranks will soon follow. The ranks of the job's next epoch will appear
  // when this epoch has ended. So go back to frequent searches.
  searches_ = 0;
  rest_ = absl::ZeroDuration();
}

std::vector<JobSnapshot> WatchedJobs::Snapshots() const {
  std::vector<JobSnapshot> snapshots;
  for (const auto& [name, job] : jobs_) snapshots.push_back(job.sampler->Snapshot());
  return snapshots;
}

}  // namespace ronda
