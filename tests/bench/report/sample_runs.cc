#include "tests/bench/report/sample_runs.h"

#include <gtest/gtest.h>

#include <utility>

namespace ronda::bench {
namespace {

std::string Document(const std::string& command, const std::string& arguments, const std::string& rows) {
  return "{\"tool\":\"ronda-bench\",\"version\":\"0.1.0\",\"command\":\"" + command +
         "\",\"date\":\"2026-11-21T19:30:00Z\",\n \"machine\":{\"cpu\":\"AMD <EPYC>\",\"cores\":2,\"memory_gib\":7.8,"
         "\"kernel\":\"Linux 6.1.0\"},\n \"core_distance_ns\":[55.2,57],\"arguments\":[" +
         arguments + "],\n \"rows\":[\n  " + rows + "\n ]}\n";
}

std::string Collective(const std::string& contestant, const std::string& kind, int bytes, double us) {
  return "{\"op\":\"allreduce\",\"ranks\":2,\"bytes\":" + std::to_string(bytes) +
         ",\"dtype\":\"float32\",\"placement\":\"in\",\"wire\":\"none\",\"contestant\":\"" + contestant +
         "\",\"kind\":\"" + kind + "\",\"median_us\":" + std::to_string(us) +
         ",\"algbw_gbs\":" + std::to_string(bytes * 1e-3 / us) + ",\"wrong\":0}";
}

std::string Step(int fusion, const std::string& wire, double step_ms) {
  return "{\"preset\":\"resnet50\",\"ranks\":2,\"compute_ms\":100,\"compute_kind\":\"spin\",\"contestant\":\"ronda\","
         "\"fusion_threshold\":" +
         std::to_string(fusion) + ",\"wire\":\"" + wire +
         "\",\"cycle_time_us\":0,\"backend\":\"shm\",\"lock\":\"on\",\"wire_bytes\":102228128,\"control_messages\":0,"
         "\"step_ms\":" +
         std::to_string(step_ms) + ",\"step_ms_p10\":101,\"step_ms_p90\":109,\"compute_only_ms\":100,\"exposed_ms\":" +
         std::to_string(step_ms - 100) + ",\"efficiency\":" + std::to_string(100 / step_ms) +
         ",\"ratio_openmpi_flat\":1.4,\"ratio_openmpi_per_tensor\":1.25,\"wrong\":0}";
}

}  // namespace

std::string SampleCollectives() {
  return Document("collectives", "\"--peer\",\"mpi\"",
                  Collective("communicator", "ronda", 1024, 2) + ",\n" + Collective("openmpi", "peer", 1024, 5) +
                      ",\n" + Collective("communicator", "ronda", 1048576, 60) + ",\n" +
                      Collective("openmpi", "peer", 1048576, 120));
}

std::string SampleStep() {
  return Document("step", "\"--compute\",\"100ms\"",
                  "{\"preset\":\"resnet50\",\"ranks\":2,\"compute_ms\":100,\"compute_kind\":\"spin\",\"contestant\":"
                  "\"compute only\",\"step_ms\":100,\"compute_only_ms\":100,\"exposed_ms\":0,\"efficiency\":1}," +
                      Step(67108864, "none", 102.5) + "," + Step(67108864, "fp16", 104) +
                      ",{\"preset\":\"resnet50\",\"ranks\":2,\"compute_ms\":100,\"compute_kind\":\"spin\","
                      "\"contestant\":\"openmpi flat\",\"step_ms\":143.5,\"step_ms_p10\":142,\"step_ms_p90\":145,"
                      "\"compute_only_ms\":100,\"exposed_ms\":43.5,\"efficiency\":0.697}");
}

std::string SampleSweep() {
  return Document("step", "\"--fusion\",\"0,64MiB\"",
                  Step(67108864, "none", 102.5) + "," + Step(67108864, "fp16", 104) + "," + Step(0, "none", 117));
}

std::string SampleLatency() {
  return Document(
      "latency", "",
      "{\"measure\":\"calls\",\"contestant\":\"client\",\"kind\":\"ronda\",\"ranks\":2,\"bytes\":4,"
      "\"calls\":1000,\"min_us\":3,\"median_us\":5.25,\"p90_us\":9,\"p99_us\":20,\"max_us\":300,\"wrong\":0,"
      "\"histogram_begin_us\":[4,5,6,8],\"histogram_count\":[100,700,150,50]},"
      "{\"measure\":\"idle\",\"ranks\":2,\"seconds\":3,\"cpu_us\":51,\"context_switches\":1}");
}

std::string SampleStartup() {
  return Document("startup", "\"--rounds\",\"3\"",
                  "{\"contestant\":\"rondarun\",\"ranks\":2,\"starts\":3,\"median_s\":0.081,\"p10_s\":0.08,\"p90_s\":"
                  "0.09,\"total_median_s\":0.11,\"first_s\":[0.081,0.08,0.09]}");
}

std::string SampleNegotiation() {
  return Document("negotiation", "",
                  "{\"preset\":\"resnet50\",\"tensors\":161,\"ranks\":64,\"step\":\"locked\",\"coordinator_us\":0,"
                  "\"other_us\":1.5,\"messages\":0,\"report_bytes\":0,\"list_bytes\":0,\"received_bytes\":0,"
                  "\"sent_bytes\":0}");
}

std::vector<RunDocument> SampleRuns() {
  const std::pair<const char*, std::string> files[] = {{"collectives.json", SampleCollectives()},
                                                       {"latency.json", SampleLatency()},
                                                       {"negotiation.json", SampleNegotiation()},
                                                       {"startup.json", SampleStartup()},
                                                       {"step.json", SampleStep()},
                                                       {"sweep.json", SampleSweep()}};
  std::vector<RunDocument> runs;
  for (const auto& [file, text] : files) {
    const absl::StatusOr<RunDocument> run = ParseRun(text, file);
    EXPECT_TRUE(run.ok()) << run.status();
    if (run.ok()) runs.push_back(*run);
  }
  return runs;
}

}  // namespace ronda::bench
