#include "runtime/launch/job_observer.h"

#include <sys/types.h>
#include <unistd.h>

#include <optional>

#include "absl/time/time.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/rank_reader.h"
#include "runtime/monitor/jobs/reports.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// Windows of steps are long: there is no need to judge them with each sample.
constexpr absl::Duration kJudgementPeriod = absl::Seconds(1);

// Whether `pid` is a child of `ancestor`, or a child of one. A process that ends meanwhile is none.
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
  if (!job.empty()) return OfJob(job);
  return [](const RankIdentity& rank) { return HasStarted(getpid(), rank.process.pid); };
}

}  // namespace

JobObserver::JobObserver(const std::string& job, JobListener* listener)
    : listener_(listener), jobs_({.is_watched = RanksOf(job)}) {}

absl::Duration JobObserver::Look() {
  const FlightTime now = FlightNow();
  jobs_.Sample(now);
  if (now >= next_judgement_) Judge(now);
  return jobs_.NextPeriod();
}

void JobObserver::Judge(FlightTime now) {
  next_judgement_ = now + kJudgementPeriod;
  for (const JobSnapshot& job : jobs_.Snapshots()) {
    if (alarms_[job.job].IsNews(job.straggler, now)) listener_->Say(DescribeStraggler(job, job.straggler));
  }
}

void JobObserver::Summarize() {
  jobs_.Sample(FlightNow());
  if (jobs_.size() == 0) listener_->Say("no summary: no process on this host became a rank");
  for (const JobSnapshot& job : jobs_.Snapshots()) {
    for (const std::string& line : SummaryOf(job)) listener_->Say(line);
  }
}

}  // namespace ronda
