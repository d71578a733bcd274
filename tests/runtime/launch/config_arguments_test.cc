// Command lines with a configuration file.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/launch/arguments.h"
#include "tests/runtime/launch/fake_sources.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using Words = std::vector<std::string>;

// Reads `words` behind a --config-file with that content.
absl::StatusOr<LaunchOptions> Parse(const std::string& content, Words words) {
  words.insert(words.begin(), {"--config-file", "f.yaml"});
  return ParseArguments(words, Sources({.files = {{"f.yaml", content}}}));
}

LaunchOptions Parsed(const std::string& content, const Words& words) {
  const auto options = Parse(content, words);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(LaunchOptions{});
}

std::string ErrorOf(const std::string& content, const Words& words) {
  const auto options = Parse(content, words);
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(options.status().message());
}

TEST(ConfigArgumentsTest, AFileCanSayEverythingButTheCommand) {
  const LaunchOptions options = Parsed(R"(
num_proc: 4
hosts: [a:2, b:2]
verbose: true
params: {fusion_threshold_mb: 32, cycle_time_ms: 10, cache_capacity: 2048, hierarchical_allreduce: true}
autotune:
  enabled: true
  log_file: 'log.csv'
  steps_per_sample: 20
timeline:
stall_check: {enabled: true, warning_time_seconds: 120, shutdown_time_seconds: 240}
logging: {level: INFO}
x: [PATH, MODE=fast]
mpi-args: "--mca btl tcp"
)",
                                       {"./train"});
  EXPECT_EQ(options.rank_count, 4);
  EXPECT_THAT(options.hosts, ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 2}));
  EXPECT_TRUE(options.verbose);
  EXPECT_THAT(options.settings,
              ElementsAre(Pair("MODE", "fast"), Pair("RONDA_AUTOTUNE", "1"), Pair("RONDA_AUTOTUNE_LOG", "log.csv"),
                          Pair("RONDA_AUTOTUNE_STEPS_PER_SAMPLE", "20"), Pair("RONDA_BACKEND", "hierarchical"),
                          Pair("RONDA_CACHE_CAPACITY", "2048"), Pair("RONDA_CYCLE_TIME", "10ms"),
                          Pair("RONDA_FUSION_THRESHOLD", "32MiB"), Pair("RONDA_LOG_LEVEL", "info"),
                          Pair("RONDA_STALL_DEADLINE", "4m"), Pair("RONDA_STALL_WARNING", "2m")));
  EXPECT_THAT(options.remote.exports, ElementsAre("PATH", "MODE"));
  EXPECT_THAT(options.remote.mpi_arguments, ElementsAre("--mca", "btl", "tcp"));
  EXPECT_THAT(options.command, ElementsAre("./train"));
}

TEST(ConfigArgumentsTest, TheCommandLineWins) {
  EXPECT_EQ(Parsed("np: 4", {"-np", "2", "x"}).rank_count, 2);
  EXPECT_THAT(Parsed("autotune: {enabled: true}", {"-np", "2", "--no-autotune", "x"}).settings,
              ElementsAre(Pair("RONDA_AUTOTUNE", "0")));
  EXPECT_THAT(Parsed("stall_check: {enabled: false}", {"-np", "2", "--stall-check", "x"}).settings, IsEmpty());
}

TEST(ConfigArgumentsTest, WhatContradictsTheCommandLineGivesWay) {
  const LaunchOptions options = Parsed("np: 4\nhosts: a:4\n", {"--nproc-per-node", "2", "x"});
  EXPECT_EQ(options.rank_count, 2);
  EXPECT_THAT(options.hosts, IsEmpty());
}

TEST(ConfigArgumentsTest, WhatTheCommandLineReplacesIsNotEvenRead) {
  EXPECT_EQ(Parsed("np: many\n", {"-np", "2", "x"}).rank_count, 2);
}

TEST(ConfigArgumentsTest, OptionsThatAddUpComeFromBoth) {
  EXPECT_THAT(Parsed("x: [A=1, B=1]", {"-np", "2", "-x", "B=2", "-x", "C=2", "x"}).settings,
              ElementsAre(Pair("A", "1"), Pair("B", "2"), Pair("C", "2")));
}

TEST(ConfigArgumentsTest, SecretsInAFileAreTheUsersOwnBusiness) {
  EXPECT_THAT(Parsed("x: API_KEY=1", {"-np", "2", "x"}).notes, IsEmpty());
  EXPECT_THAT(Parsed("autotune: {warmup-samples: 3}", {"-np", "2", "x"}).notes, SizeIs(1));
}

TEST(ConfigArgumentsTest, ErrorsNameTheFileTheLineAndTheKey) {
  EXPECT_EQ(ErrorOf("params:\n  cycle_time_ms: 1ms\n", {"-np", "2", "x"}),
            "f.yaml:2: params.cycle-time-ms: --cycle-time-ms takes a number of milliseconds from 0 to 3600000, for "
            "example --cycle-time-ms 1; got \"1ms\"");
  EXPECT_THAT(ErrorOf("num-procs: 2\n", {"x"}), HasSubstr("f.yaml:1: num-procs: no such option"));
  EXPECT_THAT(ErrorOf("a: [1\n", {"x"}), HasSubstr("f.yaml:2: "));
  EXPECT_THAT(ErrorOf("controller: gloo\n", {"-np", "2", "x"}), HasSubstr("f.yaml:1: controller: --gloo is not for"));
  EXPECT_THAT(ErrorOf("np: 2\nnproc-per-node: 2\n", {"x"}), HasSubstr("f.yaml:2: nproc-per-node: -np and"));
}

TEST(ConfigArgumentsTest, AFileThatCannotBeReadIsNamed) {
  const auto options = ParseArguments({"-np", "2", "--config-file", "g.yaml", "x"}, Sources({}));
  EXPECT_EQ(std::string(options.status().message()), "--config-file g.yaml: No such file or directory");
}

}  // namespace
}  // namespace ronda
