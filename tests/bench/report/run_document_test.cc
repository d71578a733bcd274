// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/harness/results.h"
#include "bench/report/run_document.h"
#include "tests/bench/report/sample_runs.h"

namespace ronda::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RunDocument, HoldsTheContentsOfTheFile) {
  const absl::StatusOr<RunDocument> run = ParseRun(SampleLatency(), "folder/latency-2.json");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->name, "latency-2");
  EXPECT_EQ(run->command, "latency");
  EXPECT_EQ(run->CommandLine(), "ronda-bench latency");
  EXPECT_EQ(run->machine.cpu, "AMD <EPYC>");
  EXPECT_EQ(run->machine.cores, 2);
  EXPECT_EQ(run->core_distance_ns[0], 55.2);
  EXPECT_THAT(run->peers, ElementsAre("Open MPI v4.1.4"));
  ASSERT_EQ(run->rows.size(), 2u);
  EXPECT_EQ(run->rows[0].Number("median_us"), 5.25);
  EXPECT_EQ(run->rows[0].Text("contestant"), "client");
  EXPECT_THAT(run->rows[0].List("histogram_begin_us"), ElementsAre(4, 5, 6, 8));
}

TEST(RunDocument, AnAbsentFieldIsNoNumber) {
  const RunRow row;
  EXPECT_TRUE(std::isnan(row.Number("bytes")));
  EXPECT_EQ(row.Text("op"), "");
  EXPECT_TRUE(row.List("rounds").empty());
}

TEST(RunDocument, ReadsTheOutputOfResults) {
  Results results("step", {"--shapes", "a \"quoted\"\tname"});
  results.Add({{"contestant", "ronda"}, {"step_ms", 12.5}, {"wrong", int64_t{0}}, {"ratio", std::nan("")}});
  results.SetCoreDistance(50, 60);
  const absl::StatusOr<RunDocument> run = ParseRun(results.ToJson({.cpu = "x", .cores = 4}, "2026-11-21"), "step.json");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->arguments, ElementsAre("--shapes", "a \"quoted\"\tname"));
  EXPECT_EQ(run->core_distance_ns[1], 60);
  ASSERT_EQ(run->rows.size(), 1u);
  EXPECT_EQ(run->rows[0].Number("step_ms"), 12.5);
  EXPECT_EQ(run->rows[0].Number("wrong"), 0);
  EXPECT_TRUE(std::isnan(run->rows[0].Number("ratio")));
}

TEST(RunDocument, OtherFilesAreRefusedByName) {
  for (const char* text :
       {"", "[1]", "{\"tool\":", "{\"tool\":\"other\"}", "{}", "{\"tool\":\"ronda-bench\",\"version\":3}"}) {
    const absl::Status status = ParseRun(text, "broken.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), StartsWith("broken.json: not a result of ronda-bench")) << text;
  }
}

TEST(ReadRuns, TakesTheJsonFilesOfAFolderByName) {
  const std::filesystem::path folder = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "runs";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(ReadRuns(folder.string()).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(folder / "b.json") << SampleStep();
  std::ofstream(folder / "a.json") << SampleLatency();
  std::ofstream(folder / "notes.txt") << "no JSON";
  const absl::StatusOr<std::vector<RunDocument>> runs = ReadRuns(folder.string());
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ(runs->at(0).name, "a");
  std::ofstream(folder / "c.json") << "{";
  EXPECT_THAT(std::string(ReadRuns(folder.string()).status().message()), HasSubstr("c.json: not a result"));
  EXPECT_EQ(ReadRuns((folder / "absent").string()).status().code(), absl::StatusCode::kNotFound);
}

RunRow RondaRow(double fusion, const std::string& wire, const std::string& lock) {
  RunRow row;
  row.texts = {{"preset", "gpt2"}, {"contestant", "ronda"}, {"wire", wire},
               {"lock", lock},     {"backend", "shm"},      {"compute_kind", "burn"}};
  row.numbers = {{"ranks", 4}, {"compute_ms", 12.5}, {"fusion_threshold", fusion}, {"cycle_time_us", 0}};
  return row;
}

TEST(RowLabels, NameOnlyWhatTheRunHasVaried) {
  const std::vector<RunRow> rows = {RondaRow(0, "none", "on"), RondaRow(1 << 20, "fp16", "on")};
  const ImplementationLabels labels(rows);
  EXPECT_EQ(labels.Of(rows[0]), "ronda no fusion, fp32");
  EXPECT_EQ(labels.Of(rows[1]), "ronda fusion 1 MiB, fp16");
  EXPECT_EQ(ImplementationLabels({rows[0]}).Of(rows[0]), "ronda");
}

TEST(RowLabels, LayersAreRondas) {
  RunRow row;
  row.texts = {{"contestant", "client"}, {"kind", "ronda"}, {"wire", "fp16"}};
  EXPECT_EQ(ImplementationName(row), "ronda client, fp16");
  row.texts = {{"contestant", "openmpi"}, {"kind", "peer"}, {"wire", "none"}};
  EXPECT_EQ(ImplementationName(row), "openmpi");
  row.texts = {{"contestant", "ronda"}};
  EXPECT_EQ(ImplementationName(row), "ronda");
}

TEST(RowLabels, LocksAreNamedAsSuch) {
  const std::vector<RunRow> rows = {RondaRow(0, "none", "on"), RondaRow(0, "none", "off")};
  EXPECT_EQ(ImplementationLabels(rows).Of(rows[1]), "ronda lock off");
}

TEST(RowLabels, PeersHaveNoSettings) {
  RunRow peer;
  peer.texts = {{"contestant", "gloo flat"}};
  EXPECT_EQ(ImplementationLabels({RondaRow(0, "none", "on"), RondaRow(4, "none", "on"), peer}).Of(peer), "gloo flat");
}

TEST(RowLabels, ACaseIsModelRanksAndComputation) {
  RunRow row = RondaRow(0, "none", "on");
  EXPECT_EQ(CaseLabel(row), "gpt2, 4 ranks, 12.5 ms of backward (burn)");
  row.numbers["compute_ms"] = 0;
  EXPECT_EQ(CaseLabel(row), "gpt2, 4 ranks, no computation");
}

}  // namespace
}  // namespace ronda::bench
