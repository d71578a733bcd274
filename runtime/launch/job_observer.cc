// SPDX-License-Identifier: Apache-2.0

#include "runtime/launch/job_observer.h"

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/config.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/rank_reader.h"
#include "runtime/monitor/jobs/reports.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// A window of steps is long, so it need not be judged with each sample.
constexpr absl::Duration kJudgementPeriod = absl::Seconds(1);

// Whether `pid` descends from `ancestor`. False for a process that ends meanwhile.
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

JobObserver::JobObserver(const std::string& job, JobListener* listener)
    : listener_(listener), jobs_({.is_watched = RanksOf(job)}) {}

absl::Duration JobObserver::Look() {
  const FlightTime now = FlightNow();
  jobs_.Sample(now);
  for (const JobSnapshot& epoch : jobs_.TakeEndedEpochs()) Take(epoch);
  if (now >= next_judgement_) Judge(now);
  return jobs_.NextPeriod();
}

// The next epoch has other ranks, although they have the same numbers.
void JobObserver::Take(const JobSnapshot& epoch) {
  histories_[SplitName(epoch.job).job_id].Add(epoch);
  alarms_.erase(epoch.job);
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
  for (const JobSnapshot& epoch : jobs_.Snapshots()) Take(epoch);
  if (histories_.empty()) {
    listener_->Say(
        absl::StrCat("no summary: no rank was seen on this host: the program did not join a job of Ronda's, or "
                     "it did for less than ",
                     absl::FormatDuration(WatchedJobs::kSearchAtStart)));
  }
  for (const auto& [job, history] : histories_) {
    for (const std::string& line : history.Summary()) listener_->Say(line);
  }
}

}  // namespace ronda
