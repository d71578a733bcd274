// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/job_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "programs/monitor/jobs/diagnosis.h"
#include "programs/monitor/jobs/reports.h"

namespace ronda {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }
double UnixSeconds(absl::Time time) { return Seconds(time - absl::UnixEpoch()); }

Json JsonOf(const RankSnapshot& rank) {
  const Statistics& counts = rank.sample.counts;
  const LatenessHistogram& lateness = rank.lateness.histogram;
  return {
      {"rank", rank.rank()},
      {"host", rank.identity.topology.hostname},
      {"pid", rank.identity.process.pid},
      {"alive", rank.is_alive},
      {"state", rank.process_now.state == 0 ? "" : std::string(1, rank.process_now.state)},
      {"steps", counts.steps},
      {"steps_per_second", rank.rates.steps_per_second},
      {"bytes_per_second", rank.rates.bytes_per_second},
      {"waited_share", rank.rates.waited_share},
      {"wire_ratio", rank.rates.wire_ratio},
      {"tensors", counts.tensors},
      {"tensors_in_flight", counts.tensors_in_flight},
      {"schedule_locked", counts.schedules_begun > counts.schedules_left},
      {"lateness", {{"buckets", lateness.count}, {"sum_seconds", Seconds(lateness.sum)}, {"last", rank.lateness.last}}},
      {"blamed_wait_seconds", Seconds(rank.lateness.blamed_wait)}};
}

Json JsonOf(const Standstill& standstill, FlightTime now) {
  Json blamed = Json::array();
  for (const Standstill::Blamed& each : standstill.blamed) {
    blamed.push_back({{"rank", each.rank}, {"why", Describe(each.why)}});
  }
  return {{"waiting", standstill.waiting},
          {"blamed", blamed},
          {"tensor", standstill.tensor},
          {"for_seconds", Seconds(now - standstill.since)}};
}

Json JsonOf(const StragglerVerdict& verdict) {
  return {{"kind", Name(verdict.kind)},
          {"rank", verdict.rank},
          {"steps", verdict.steps},
          {"last_steps", verdict.last_steps},
          {"waited_seconds", Seconds(verdict.waited)},
          {"span_seconds", Seconds(verdict.span)},
          {"why", Describe(verdict.why)}};
}

Json JsonOf(const SlowNetwork& network) {
  return {{"host", network.host},
          {"ranks", network.ranks},
          {"round_trip_seconds", Seconds(network.round_trip)},
          {"waited_share", network.waited_share}};
}

// Times are in seconds since the start of the step.
Json JsonOf(const StepRecord& step) {
  const auto after_begin = [&](FlightTime time) { return Seconds(time - step.begin); };
  Json buckets = Json::array();
  for (const StepBucket& bucket : step.buckets) {
    Json parts = Json::array();
    for (const BucketPart& part : bucket.parts) {
      parts.push_back({{"rank", part.rank}, {"entered", after_begin(part.entered)}, {"left", after_begin(part.left)}});
    }
    buckets.push_back(
        {{"name", bucket.name}, {"bytes", bucket.bytes}, {"complete", after_begin(bucket.complete)}, {"parts", parts}});
  }
  return {{"seconds", after_begin(step.end)}, {"buckets", buckets}};
}

Json JsonOf(const JobSnapshot& job, absl::Time clock_zero) {
  Json ranks = Json::array();
  for (const RankSnapshot& rank : job.ranks) ranks.push_back(JsonOf(rank));
  const bool has_straggler = job.straggler.kind != StragglerVerdict::Kind::kNone;
  return {{"job", job.job},
          {"name", job.origin.name},
          {"command", job.origin.command},
          {"launcher_pid", job.origin.launcher},
          {"age_seconds", Seconds(job.now - job.origin.started)},
          {"size", job.ranks.empty() ? 0 : job.ranks.front().identity.topology.size},
          {"time", UnixSeconds(clock_zero + job.now)},
          {"why", absl::StripAsciiWhitespace(WhyText(job))},
          {"standstill", job.standstill ? JsonOf(*job.standstill, job.now) : Json()},
          {"straggler", has_straggler ? JsonOf(job.straggler) : Json()},
          {"network", job.network ? JsonOf(*job.network) : Json()},
          {"last_step", job.last_step ? JsonOf(*job.last_step) : Json()},
          {"buckets_measured", job.buckets_measured},
          {"buckets_missed", job.buckets_missed},
          {"ranks", ranks}};
}

}  // namespace

std::string JobsJson(absl::Span<const JobSnapshot> jobs, absl::Time clock_zero) {
  Json all = Json::array();
  for (const JobSnapshot& job : jobs) all.push_back(JsonOf(job, clock_zero));
  // Tensor names may contain bytes that are not UTF-8, so such bytes are replaced.
  return Json{{"jobs", all}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ronda
