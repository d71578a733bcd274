#ifndef RONDA_RUNTIME_MONITOR_JOBS_JOB_WATCH_H_
#define RONDA_RUNTIME_MONITOR_JOBS_JOB_WATCH_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_sampler.h"
#include "runtime/monitor/jobs/job_snapshot.h"

namespace ronda {

// Watches the job of a name on this host, also from before its ranks are there.
//
// Looks for the ranks until all of this host are found: for 0.2 % of the time at most, since a program may never become
// a rank. When more ranks than before are found, all numbers begin anew.
//
// Thread-compatible. Has no thread of its own.
class JobWatch {
 public:
  explicit JobWatch(std::string job) : job_(std::move(job)) {}

  // To be called every JobSampler::kPeriod.
  void Look(FlightTime now);

  // As of the last call of Look; nullopt: no rank has been found yet.
  std::optional<JobSnapshot> Snapshot() const;

 private:
  void Search(FlightTime now);

  const std::string job_;
  std::optional<JobSampler> sampler_;
  size_t ranks_ = 0;  // that the sampler has
  bool is_complete_ = false;
  FlightTime next_search_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_JOB_WATCH_H_
