#ifndef RONDA_RUNTIME_MONITOR_JOBS_JOB_WATCH_H_
#define RONDA_RUNTIME_MONITOR_JOBS_JOB_WATCH_H_

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_sampler.h"
#include "runtime/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {

// Watches a job on this host, also from before its ranks are there.
//
// Looks for the ranks until all of this host are found. After the first seconds that takes 0.2 % of the time at most,
// since a program may never become a rank. When more ranks than before are found, all numbers begin anew.
//
// Thread-compatible. Has no thread of its own.
class JobWatch {
 public:
  // `is_one` tells the ranks of the job from others.
  explicit JobWatch(RankFilter is_one) : is_one_(std::move(is_one)) {}

  // To be called every JobSampler::kPeriod, or after NextPeriod().
  void Look(FlightTime now);
  absl::Duration NextPeriod() const { return sampler_.has_value() ? sampler_->NextPeriod() : JobSampler::kPeriod; }

  // As of the last call of Look; nullopt: no rank has been found yet.
  std::optional<JobSnapshot> Snapshot() const;

 private:
  void Search(FlightTime now);

  const RankFilter is_one_;
  std::optional<JobSampler> sampler_;
  int searches_ = 0;
  size_t ranks_ = 0;  // that the sampler has
  bool is_complete_ = false;
  FlightTime next_search_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_JOB_WATCH_H_
