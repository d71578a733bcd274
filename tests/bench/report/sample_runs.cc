// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/report/sample_runs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "bench/harness/results.h"

namespace ronda::bench {
namespace {

std::string Document(const std::string& command, std::vector<std::string> arguments,
                     const std::vector<ResultRow>& rows) {
  Results results(command, std::move(arguments));
  for (const ResultRow& row : rows) results.Add(row);
  results.SetCoreDistance(55.2, 57);
  results.AddPeer("Open MPI v4.1.4");
  return results.ToJson({.cpu = "AMD <EPYC>", .cores = 2, .memory_gib = 7.8, .kernel = "Linux 6.1.0"},
                        "2026-11-21T19:30:00Z");
}

ResultRow Collective(const char* implementation, const char* kind, int64_t bytes, double us) {
  const double bandwidth = static_cast<double>(bytes) * 1e-3 / us;
  return {{"op", "allreduce"},
          {"ranks", int64_t{2}},
          {"bytes", bytes},
          {"dtype", "float32"},
          {"placement", "in"},
          {"wire", "none"},
          {"contestant", implementation},
          {"kind", kind},
          {"median_us", us},
          {"algbw_gbs", bandwidth},
          {"busbw_gbs", bandwidth},
          {"wrong", int64_t{0}}};
}

ResultRow Step(const char* implementation, double step_ms) {
  return {{"preset", "resnet50"},         {"ranks", int64_t{2}},          {"compute_ms", 100.0},
          {"compute_kind", "spin"},       {"contestant", implementation}, {"step_ms", step_ms},
          {"step_ms_p10", step_ms - 1.5}, {"step_ms_p90", step_ms + 1.5}, {"compute_only_ms", 100.0},
          {"exposed_ms", step_ms - 100},  {"efficiency", 100 / step_ms}};
}

ResultRow RondaStep(const char* wire, double step_ms) {
  ResultRow row = Step("ronda", step_ms);
  const ResultRow more = {{"fusion_threshold", int64_t{64} << 20},
                          {"wire", wire},
                          {"cycle_time_us", 0.0},
                          {"backend", "shm"},
                          {"lock", "on"},
                          {"wire_bytes", int64_t{102228128}},
                          {"control_messages", 0.0},
                          {"ratio_openmpi_flat", 1.4},
                          {"ratio_openmpi_per_tensor", 1.25}};
  row.insert(row.end(), more.begin(), more.end());
  return row;
}

}  // namespace

std::string SampleStep() {
  return Document(
      "step", {"--compute", "100ms"},
      {Step("compute only", 100), RondaStep("none", 102.5), RondaStep("fp16", 104), Step("openmpi flat", 143.5)});
}

std::string SampleLatency() {
  return Document(
      "latency", {},
      {{{"measure", "calls"},
        {"contestant", "client"},
        {"kind", "ronda"},
        {"ranks", int64_t{2}},
        {"bytes", int64_t{4}},
        {"calls", int64_t{1000}},
        {"min_us", 3.0},
        {"median_us", 5.25},
        {"p90_us", 9.0},
        {"p99_us", 20.0},
        {"max_us", 300.0},
        {"histogram_begin_us", std::vector<double>{4, 5, 6, 8}},
        {"histogram_count", std::vector<double>{100, 700, 150, 50}}},
       {{"measure", "idle"}, {"ranks", int64_t{2}}, {"seconds", 3.0}, {"cpu_us", 51.0}, {"context_switches", 1.0}}});
}

std::vector<RunDocument> SampleRuns() {
  const std::string collectives =
      Document("collectives", {"--peer", "mpi"},
               {Collective("communicator", "ronda", 1024, 2), Collective("openmpi", "peer", 1024, 5),
                Collective("communicator", "ronda", 1048576, 60), Collective("openmpi", "peer", 1048576, 120)});
  const std::string negotiation = Document("negotiation", {},
                                           {{{"ranks", int64_t{64}},
                                             {"step", "locked"},
                                             {"coordinator_us", 0.0},
                                             {"other_us", 1.5},
                                             {"messages", int64_t{0}},
                                             {"report_bytes", int64_t{0}},
                                             {"list_bytes", int64_t{0}},
                                             {"received_bytes", int64_t{0}},
                                             {"sent_bytes", int64_t{0}}}});
  const std::string startup = Document("startup", {"--rounds", "3"},
                                       {{{"contestant", "ronda"},
                                         {"ranks", int64_t{2}},
                                         {"median_s", 0.081},
                                         {"p10_s", 0.08},
                                         {"p90_s", 0.09},
                                         {"total_median_s", 0.11}}});
  const std::pair<const char*, std::string> files[] = {{"collectives.json", collectives},
                                                       {"latency.json", SampleLatency()},
                                                       {"negotiation.json", negotiation},
                                                       {"startup.json", startup},
                                                       {"step.json", SampleStep()}};
  std::vector<RunDocument> runs;
  for (const auto& [file, text] : files) {
    const absl::StatusOr<RunDocument> run = ParseRun(text, file);
    EXPECT_TRUE(run.ok()) << run.status();
    if (run.ok()) runs.push_back(*run);
  }
  return runs;
}

}  // namespace ronda::bench
