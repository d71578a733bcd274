// SPDX-License-Identifier: Apache-2.0

// Tests arbitrary calls to MonitorService. Each call must be refused, or answered for an existing job.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "programs/monitor/serve/monitor_service.h"
#include "programs/monitor/serve/proved_calls.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ronda::JobSnapshot;
  using ronda::RankAnswer;
  using ronda::TimelineRequest;
  static constexpr const char* kMethods[] = {"GetJobs",    "Explain", "StartTimeline", "StopTimeline", "StopJob",
                                             "GetSamples", ""};
  ronda::fuzz::FuzzInput input(data, size);
  const std::string method = absl::StrCat("/ronda.v1.MonitorService/", kMethods[input.Below(7)]);
  const std::vector<JobSnapshot> jobs = {{.job = "alpha"}, {.job = "beta"}};
  const auto require_known = [](const std::string& job) {
    ronda::fuzz::Require(job == "alpha" || job == "beta", "a job is asked that there is");
  };
  const ronda::MonitorService service(
      {.snapshots = [&] { return jobs; },
       .ask = [&](const std::string& job, const TimelineRequest& request) -> absl::StatusOr<std::vector<RankAnswer>> {
         require_known(job);
         return std::vector<RankAnswer>{{.rank = 3, .file = request.path}};
       },
       .end = [&](const std::string& job) -> absl::StatusOr<pid_t> {
         require_known(job);
         return 1;
       }});
  const absl::string_view request = input.TakeRest();
  ronda::ProvedCalls proved(&service, "a secret that no input has");
  ronda::fuzz::Require(!proved.Answer(method, request).ok(), "without a proof there is no answer");
  const auto answer = service.Answer(method, request);
  ronda::fuzz::Require(answer.ok() || !answer.status().message().empty(), "a refusal says why");
  return 0;
}
