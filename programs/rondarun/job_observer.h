// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_JOB_OBSERVER_H_
#define RONDA_PROGRAMS_RONDARUN_JOB_OBSERVER_H_

#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "programs/monitor/jobs/job_history.h"
#include "programs/monitor/jobs/straggler.h"
#include "programs/monitor/jobs/watched_jobs.h"
#include "programs/rondarun/supervise/job_part.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/summary_file.h"

namespace ronda {

// Watches a job's ranks on this host while the launcher runs the job, through all of its epochs. Tells the user when
// one rank holds up the others, and prints a table at the end. Keeps only a JobHistory of epochs that have ended.
//
// Thread-compatible.
class JobObserver {
 public:
  // `job` is the job's name, or empty if the name is unknown. In that case, the job's ranks are those that descend from
  // this process. The ranks write their summaries to `file`. `listener` and `file` must outlive this object.
  JobObserver(const std::string& job, JobListener* listener, const SummaryFile* file);

  // Reads the ranks' counters and looks for stragglers. Returns the time after which the caller must call Look again.
  absl::Duration Look();

  // Prints the table once the job has ended.
  void Summarize();

 private:
  void Judge(FlightTime now);
  void Record(const JobSnapshot& epoch);
  void TakeUnseenEpochs();

  JobListener* const listener_;
  const SummaryFile* const file_;
  WatchedJobs jobs_;
  std::map<std::string, StragglerAlarm> alarms_;  // by job and epoch
  std::map<std::string, JobHistory> histories_;   // by job: of the earlier epochs
  std::set<std::string> taken_;                   // names of the earlier epochs
  FlightTime next_judgement_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_JOB_OBSERVER_H_
