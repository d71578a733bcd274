#ifndef RONDA_RUNTIME_LAUNCH_JOB_OBSERVER_H_
#define RONDA_RUNTIME_LAUNCH_JOB_OBSERVER_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "runtime/launch/supervise/job_part.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_history.h"
#include "runtime/monitor/jobs/straggler.h"
#include "runtime/monitor/jobs/watched_jobs.h"

namespace ronda {

// Watches the ranks of a job on this host while the launcher runs it, through all of its epochs, and tells the user
// about them: a rank that holds the others up while it does, and a table at the end. Of an epoch that has ended it
// keeps what JobHistory does.
//
// Thread-compatible.
class JobObserver {
 public:
  // An empty `job` is unknown: its ranks are those that this process and its children have started. `listener` must
  // outlive this.
  JobObserver(const std::string& job, JobListener* listener);

  // Returns the time until it is to be called again.
  absl::Duration Look();

  // The job has ended.
  void Summarize();

 private:
  void Judge(FlightTime now);
  void Take(const JobSnapshot& epoch);

  JobListener* const listener_;
  WatchedJobs jobs_;
  std::map<std::string, StragglerAlarm> alarms_;  // by job and epoch
  std::map<std::string, JobHistory> histories_;   // by job: of the epochs before
  FlightTime next_judgement_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_JOB_OBSERVER_H_
