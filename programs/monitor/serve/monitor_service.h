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

// Returns the data of JobsJson as a protobuf message, for programs.
v1::GetJobsResponse JobsMessage(const std::vector<JobSnapshot>& jobs, absl::Time clock_zero);

// Answers the calls of MonitorService (proto/ronda/v1/monitor.proto). The class does not check who the caller is.
//
// Thread-safe if the functions in `jobs` are thread-safe.
class MonitorService {
 public:
  struct Jobs {
    std::function<std::vector<JobSnapshot>()> snapshots;
    // Asks the ranks of the job `job`.
    std::function<absl::StatusOr<std::vector<RankAnswer>>(const std::string& job, const TimelineRequest& request)> ask;
    std::function<absl::StatusOr<pid_t>(const std::string& job)> end;
  };
  explicit MonitorService(Jobs jobs) : jobs_(std::move(jobs)) {}

  // Answers a call. `method` is the name of the method in gRPC, such as "/ronda.v1.MonitorService/GetJobs". `request`
  // and the answer are encoded messages.
  // Errors: UNIMPLEMENTED, INVALID_ARGUMENT (a damaged request), and the errors of ChooseJob and of the functions.
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
