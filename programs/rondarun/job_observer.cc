// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/job_observer.h"

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_sampler.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "programs/monitor/jobs/reports.h"
#include "runtime/base/config.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// A verdict covers many steps, so one verdict per period is enough.
constexpr absl::Duration kJudgementPeriod = absl::Seconds(1);

// Returns whether `pid` descends from `ancestor`. Returns false if one of the two processes ends during the call.
bool HasStarted(pid_t ancestor, pid_t pid) {
  while (pid > 1) {
    const std::optional<ProcessStat> stat = ReadProcessStat(pid);
    if (!stat.has_value()) return false;
    if (stat->parent == ancestor) return true;
    pid = stat->parent;
  }
  return false;
}

RankFilter RanksOf(const std::string& job) {
  if (!job.empty()) return OfJobInAnyEpoch(job);
  return [](const RankIdentity& rank) { return HasStarted(getpid(), rank.process.pid); };
}

}  // namespace

JobObserver::JobObserver(const std::string& job, JobListener* listener, const SummaryFile* file)
    : listener_(listener), file_(file), jobs_({.is_watched = RanksOf(job)}) {}

absl::Duration JobObserver::Look() {
  const FlightTime now = FlightNow();
  jobs_.Sample(now);
  for (const JobSnapshot& epoch : jobs_.TakeEndedEpochs()) Record(epoch);
  if (now >= next_judgement_) Judge(now);
  return jobs_.NextPeriod();
}

// Stores a snapshot of an epoch that has ended, and drops its alarms, because in the next epoch the same number may
// belong to another rank.
void JobObserver::Record(const JobSnapshot& epoch) {
  histories_[SplitName(epoch.job).job_id].Add(epoch);
  taken_.insert(epoch.job);
  alarms_.erase(epoch.job);
}

// Adds the epochs that were too short for any search for ranks to find them.
void JobObserver::TakeUnseenEpochs() {
  std::map<std::string, std::map<RankId, std::unique_ptr<RankReader>>> epochs;
  for (const std::string& words : file_->Read()) {
    auto rank = RankReader::OfFinalWords(words);
    if (!rank.ok()) continue;
    const RankIdentity& identity = (*rank)->identity();
    // A program that left the job and joined again has written several summaries; the newest one is kept.
    if (!taken_.contains(identity.job)) epochs[identity.job][identity.topology.rank] = *std::move(rank);
  }
  for (auto& [name, by_rank] : epochs) {
    std::vector<std::unique_ptr<RankReader>> ranks;
    for (auto& [number, rank] : by_rank) ranks.push_back(std::move(rank));
    JobSampler sampler(std::move(ranks));
    sampler.Sample(FlightNow());
    Record(sampler.Snapshot());
  }
}

void JobObserver::Judge(FlightTime now) {
  next_judgement_ = now + kJudgementPeriod;
  for (const JobSnapshot& job : jobs_.Snapshots()) {
    if (!alarms_[job.job].IsNews(job.straggler, now)) continue;
    const int64_t epoch = SplitName(job.job).epoch;
    listener_->Say(
        absl::StrCat(epoch == 0 ? "" : absl::StrCat("epoch ", epoch, ": "), DescribeStraggler(job, job.straggler)));
  }
}

void JobObserver::Summarize() {
  jobs_.Sample(FlightNow());
  for (const JobSnapshot& epoch : jobs_.Snapshots()) Record(epoch);
  TakeUnseenEpochs();
  if (histories_.empty()) {
    listener_->Say(
        absl::StrCat("no summary: no rank was seen on this host: the program did not join a job of Ronda's, or its "
                     "ranks ran for less than ",
                     absl::FormatDuration(WatchedJobs::kSearchAtStart),
                     " and left no numbers, because they were killed or because mpirun or an agent had started them"));
  }
  for (const auto& [job, history] : histories_) {
    for (const std::string& line : history.Summary()) listener_->Say(line);
  }
}

}  // namespace ronda
