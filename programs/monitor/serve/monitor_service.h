// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_SERVE_MONITOR_SERVICE_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_MONITOR_SERVICE_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "programs/monitor/jobs/rank_control.h"
#include "proto/ronda/v1/monitor.pb.h"
#include "runtime/monitor/rank_request.h"

namespace ronda {

// Returns the data of JobsJson as a protobuf message.
v1::GetJobsResponse JobsMessage(const std::vector<JobSnapshot>& jobs, absl::Time clock_zero);

// Implements MonitorService (proto/ronda/v1/monitor.proto). Does not check who the caller is.
//
// Thread-safe if the functions in `jobs` are thread-safe.
class MonitorService {
 public:
  struct Jobs {
    std::function<std::vector<JobSnapshot>()> snapshots;
    // Sends a request to the ranks of `job`.
    std::function<absl::StatusOr<std::vector<RankAnswer>>(const std::string& job, const TimelineRequest& request)> ask;
    std::function<absl::StatusOr<pid_t>(const std::string& job)> end;
  };
  explicit MonitorService(Jobs jobs) : jobs_(std::move(jobs)) {}

  // Answers a call. `method` is the gRPC method name, such as "/ronda.v1.MonitorService/GetJobs". `request` and the
  // result are encoded messages. Errors: UNIMPLEMENTED; INVALID_ARGUMENT for a damaged request; those of ChooseJob and
  // of the functions in Jobs.
  absl::StatusOr<std::string> Answer(absl::string_view method, absl::string_view request) const;

 private:
  absl::StatusOr<std::string> Choose(const std::string& beginning) const;
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request) const;
  absl::StatusOr<v1::GetSamplesResponse> Samples(const v1::GetSamplesRequest& request) const;
  absl::StatusOr<v1::TimelineResponse> SetTimeline(const std::string& job, const TimelineRequest& request) const;
  absl::StatusOr<v1::StopJobResponse> Stop(const v1::StopJobRequest& request) const;

  const Jobs jobs_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_MONITOR_SERVICE_H_
