// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/monitor_service.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "programs/monitor/jobs/diagnosis.h"
#include "programs/monitor/jobs/job_control.h"
#include "programs/monitor/jobs/reports.h"
#include "programs/monitor/serve/host_report.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr char kPrefix[] = "/ronda.v1.MonitorService/";

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

// Replaces all characters that are not ASCII, because a process may give its job or host any name, and protobuf strings
// must be UTF-8.
std::string Ascii(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c >= 0x80; }, '?');
  return text;
}

void Fill(const RankSnapshot& rank, v1::Rank* message) {
  const Statistics& counts = rank.sample.counts;
  message->set_rank(rank.rank());
  message->set_host(Ascii(rank.identity.topology.hostname));
  message->set_pid(rank.identity.process.pid);
  message->set_alive(rank.is_alive);
  if (rank.process_now.state != 0) message->set_state(std::string(1, rank.process_now.state));
  message->set_steps(counts.steps);
  message->set_steps_per_second(rank.rates.steps_per_second);
  message->set_bytes_per_second(rank.rates.bytes_per_second);
  message->set_waited_share(rank.rates.waited_share);
  message->set_wire_ratio(rank.rates.wire_ratio);
  message->set_tensors(counts.tensors);
  message->set_tensors_in_flight(counts.tensors_in_flight);
  message->set_schedule_locked(counts.schedules_begun > counts.schedules_left);
  message->set_lateness_buckets(rank.lateness.histogram.count);
  message->set_lateness_sum_seconds(Seconds(rank.lateness.histogram.sum));
  message->set_lateness_last(rank.lateness.last);
  message->set_blamed_wait_seconds(Seconds(rank.lateness.blamed_wait));
}

void Fill(const Standstill& standstill, FlightTime now, v1::Standstill* message) {
  for (const RankId rank : standstill.waiting) message->add_waiting(rank);
  for (const Standstill::Blamed& each : standstill.blamed) {
    v1::Standstill::Blamed* const blamed = message->add_blamed();
    blamed->set_rank(each.rank);
    blamed->set_why(Describe(each.why));
  }
  message->set_tensor(standstill.tensor);
  message->set_for_seconds(Seconds(now - standstill.since));
}

void Fill(const StragglerVerdict& verdict, v1::Straggler* message) {
  message->set_kind(Name(verdict.kind));
  message->set_rank(verdict.rank);
  message->set_steps(verdict.steps);
  message->set_last_steps(verdict.last_steps);
  message->set_waited_seconds(Seconds(verdict.waited));
  message->set_span_seconds(Seconds(verdict.span));
  message->set_why(Describe(verdict.why));
}

void Fill(const SlowNetwork& network, v1::SlowNetwork* message) {
  message->set_host(Ascii(network.host));
  for (const RankId rank : network.ranks) message->add_ranks(rank);
  message->set_round_trip_seconds(Seconds(network.round_trip));
  message->set_waited_share(network.waited_share);
}

void Fill(const JobSnapshot& job, absl::Time clock_zero, v1::Job* message) {
  message->set_job(Ascii(job.job));
  message->set_size(job.ranks.empty() ? 0 : job.ranks.front().identity.topology.size);
  message->set_time(Seconds(clock_zero + job.now - absl::UnixEpoch()));
  message->set_why(WhyText(job));
  for (const RankSnapshot& rank : job.ranks) Fill(rank, message->add_ranks());
  if (job.standstill.has_value()) Fill(*job.standstill, job.now, message->mutable_standstill());
  if (job.straggler.kind != StragglerVerdict::Kind::kNone) Fill(job.straggler, message->mutable_straggler());
  if (job.network.has_value()) Fill(*job.network, message->mutable_network());
  message->set_buckets_measured(job.buckets_measured);
  message->set_buckets_missed(job.buckets_missed);
}

void Fill(const RankAnswer& answer, v1::TimelineResponse::Answer* message) {
  using Message = v1::TimelineResponse::Answer;
  message->set_rank(answer.rank);
  if (!answer.file.has_value()) {
    message->set_state(Message::STATE_PENDING);
  } else if (answer.file->ok()) {
    message->set_state(Message::STATE_DONE);
    message->set_file(**answer.file);
  } else {
    message->set_state(Message::STATE_FAILED);
    message->set_error(std::string(answer.file->status().message()));
  }
}

// Decodes the request in `bytes`, and returns the encoded result of `handle`.
template <typename Request, typename Handle>
absl::StatusOr<std::string> Handled(absl::string_view bytes, const Handle& handle) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a damaged request: ", bytes.size(), " bytes are no ", request.GetTypeName()));
  }
  RONDA_ASSIGN_OR_RETURN(const auto response, handle(request));
  return response.SerializeAsString();
}

}  // namespace

v1::GetJobsResponse JobsMessage(const std::vector<JobSnapshot>& jobs, absl::Time clock_zero) {
  v1::GetJobsResponse response;
  for (const JobSnapshot& job : jobs) Fill(job, clock_zero, response.add_jobs());
  return response;
}

absl::StatusOr<std::string> MonitorService::Answer(absl::string_view method, absl::string_view bytes) const {
  using Kind = TimelineRequest::Kind;
  absl::string_view name = method;
  if (!absl::ConsumePrefix(&name, kPrefix)) name = "";
  if (name == "GetJobs") {
    return Handled<v1::GetJobsRequest>(bytes, [&](const auto&) -> absl::StatusOr<v1::GetJobsResponse> {
      return JobsMessage(jobs_.snapshots(), CalendarNow() - FlightNow());
    });
  }
  if (name == "Explain") {
    return Handled<v1::ExplainRequest>(bytes, [&](const auto& request) { return Explain(request); });
  }
  if (name == "GetSamples") {
    return Handled<v1::GetSamplesRequest>(bytes, [&](const auto& request) { return Samples(request); });
  }
  if (name == "StartTimeline") {
    return Handled<v1::StartTimelineRequest>(bytes, [&](const auto& request) {
      return SetTimeline(request.job(), {.kind = Kind::kStart, .path = request.path()});
    });
  }
  if (name == "StopTimeline") {
    return Handled<v1::StopTimelineRequest>(
        bytes, [&](const auto& request) { return SetTimeline(request.job(), {.kind = Kind::kStop}); });
  }
  if (name == "StopJob") {
    return Handled<v1::StopJobRequest>(bytes, [&](const auto& request) { return Stop(request); });
  }
  return absl::UnimplementedError(absl::StrCat("there is no ", method));
}

absl::StatusOr<std::string> MonitorService::Choose(const std::string& beginning) const {
  std::vector<KnownJob> jobs;
  for (const JobSnapshot& job : jobs_.snapshots()) jobs.push_back({.job = job.job, .origin = job.origin});
  return ChooseJob(beginning, jobs);
}

absl::StatusOr<v1::ExplainResponse> MonitorService::Explain(const v1::ExplainRequest& request) const {
  RONDA_ASSIGN_OR_RETURN(const std::string name, Choose(request.job()));
  v1::ExplainResponse response;
  for (const JobSnapshot& job : jobs_.snapshots()) {
    if (job.job == name) response.set_text(WhyText(job));
  }
  return response;
}

absl::StatusOr<v1::GetSamplesResponse> MonitorService::Samples(const v1::GetSamplesRequest& request) const {
  RONDA_ASSIGN_OR_RETURN(const std::string name, Choose(request.job()));
  v1::GetSamplesResponse response;
  for (const JobSnapshot& job : jobs_.snapshots()) {
    if (job.job == name) response.set_report(EncodeHostReport(job, FlightNow()));
  }
  return response;
}

absl::StatusOr<v1::TimelineResponse> MonitorService::SetTimeline(const std::string& job,
                                                                 const TimelineRequest& request) const {
  RONDA_ASSIGN_OR_RETURN(const std::string name, Choose(job));
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankAnswer> answers, jobs_.ask(name, request));
  v1::TimelineResponse response;
  for (const RankAnswer& answer : answers) Fill(answer, response.add_answers());
  return response;
}

absl::StatusOr<v1::StopJobResponse> MonitorService::Stop(const v1::StopJobRequest& request) const {
  RONDA_ASSIGN_OR_RETURN(const std::string name, Choose(request.job()));
  RONDA_ASSIGN_OR_RETURN(const pid_t launcher, jobs_.end(name));
  v1::StopJobResponse response;
  response.set_launcher_pid(launcher);
  return response;
}

}  // namespace ronda
