// SPDX-License-Identifier: Apache-2.0

// Tests how rondarun translates Horovod's variables into its own options.
#include "programs/options/horovod_variables.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/arguments.h"
#include "tests/programs/options/fake_sources.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

LaunchOptions Parsed(const Variables& environment, Words words = {}) {
  words.insert(words.begin(), {"-np", "2"});
  words.push_back("x");
  const auto options = ParseArguments(words, Sources({.environment = environment}));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(LaunchOptions{});
}

TEST(HorovodVariablesTest, EachTwinIsTakenWithItsUnit) {
  const std::vector<std::pair<Variables, Variables>> cases = {
      {{{"HOROVOD_FUSION_THRESHOLD", "134217728"}}, {{"RONDA_FUSION_THRESHOLD", "128MiB"}}},
      {{{"HOROVOD_FUSION_THRESHOLD", "1000001"}}, {{"RONDA_FUSION_THRESHOLD", "1000001"}}},
      {{{"HOROVOD_FUSION_THRESHOLD", "0"}}, {{"RONDA_FUSION_THRESHOLD", "0MiB"}}},
      {{{"HOROVOD_FUSION_THRESHOLD", "1"}}, {{"RONDA_FUSION_THRESHOLD", "1"}}},
      {{{"HOROVOD_FUSION_THRESHOLD", "1099511627776"}}, {{"RONDA_FUSION_THRESHOLD", "1048576MiB"}}},
      {{{"HOROVOD_FUSION_THRESHOLD", "1099511627775"}}, {{"RONDA_FUSION_THRESHOLD", "1099511627775"}}},
      {{{"HOROVOD_CYCLE_TIME", "2.5"}}, {{"RONDA_CYCLE_TIME", "2.5ms"}}},
      {{{"HOROVOD_CACHE_CAPACITY", "2048"}}, {{"RONDA_CACHE_CAPACITY", "2048"}}},
      {{{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_LOG", "a.csv"}, {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "20"}},
       {{"RONDA_AUTOTUNE", "1"}, {"RONDA_AUTOTUNE_LOG", "a.csv"}, {"RONDA_AUTOTUNE_STEPS_PER_SAMPLE", "20"}}},
      {{{"HOROVOD_AUTOTUNE", "0"}}, {}},
      {{{"HOROVOD_TIMELINE", "t.json"}, {"HOROVOD_TIMELINE_MARK_CYCLES", "1"}}, {{"RONDA_TIMELINE", "t.json"}}},
      {{{"HOROVOD_TIMELINE", "DYNAMIC"}}, {}},
      {{{"HOROVOD_STALL_CHECK_TIME_SECONDS", "90"}, {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "120"}},
       {{"RONDA_STALL_WARNING", "1m30s"}, {"RONDA_STALL_DEADLINE", "2m"}}},
      {{{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0"}}, {{"RONDA_STALL_DEADLINE", "inf"}}},
      {{{"HOROVOD_STALL_CHECK_DISABLE", "1"}}, {{"RONDA_STALL_WARNING", "inf"}, {"RONDA_STALL_DEADLINE", "inf"}}},
      {{{"HOROVOD_START_TIMEOUT", "7"}, {"HOROVOD_GLOO_TIMEOUT_SECONDS", "9"}}, {{"RONDA_START_TIMEOUT", "7s"}}},
      {{{"HOROVOD_GLOO_TIMEOUT_SECONDS", "9"}}, {{"RONDA_START_TIMEOUT", "9s"}}},
      {{{"HOROVOD_GLOO_IFACE", "eth0"}}, {{"RONDA_NETWORK_INTERFACE", "eth0"}}},
      {{{"HOROVOD_LOG_LEVEL", "TRACE"}, {"HOROVOD_LOG_HIDE_TIME", "1"}}, {{"RONDA_LOG_LEVEL", "debug"}}},
      {{{"HOROVOD_CYCLE_TIME", ""}, {"HOROVOD_AUTOTUNE", ""}}, {}}};
  for (const auto& [horovods, rondas] : cases) {
    const LaunchOptions options = Parsed(horovods);
    EXPECT_EQ(options.settings, rondas) << horovods.begin()->first;
    EXPECT_THAT(options.notes, IsEmpty()) << horovods.begin()->first;
  }
}

TEST(HorovodVariablesTest, HierarchicalAllreduceIsForSeveralHosts) {
  const Variables hierarchical = {{"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"}};
  EXPECT_THAT(Parsed(hierarchical).settings, IsEmpty());
  EXPECT_THAT(Parsed(hierarchical, {"-H", "a:1,b:1"}).settings, ElementsAre(Pair("RONDA_BACKEND", "hierarchical")));
}

TEST(HorovodVariablesTest, OptionsAndRondasOwnVariablesWin) {
  EXPECT_THAT(Parsed({{"HOROVOD_CYCLE_TIME", "5"}}, {"--cycle-time-ms", "2"}).settings,
              ElementsAre(Pair("RONDA_CYCLE_TIME", "2ms")));
  EXPECT_THAT(Parsed({{"HOROVOD_AUTOTUNE", "1"}}, {"--no-autotune"}).settings,
              ElementsAre(Pair("RONDA_AUTOTUNE", "0")));
  EXPECT_THAT(Parsed({{"HOROVOD_CYCLE_TIME", "often"}, {"RONDA_CYCLE_TIME", "1ms"}}).settings, IsEmpty());
  EXPECT_THAT(Parsed({{"HOROVOD_CYCLE_TIME", "often"}}, {"--cycle-time-ms", "2"}).settings,
              ElementsAre(Pair("RONDA_CYCLE_TIME", "2ms")));
}

TEST(HorovodVariablesTest, OthersAreNamedInOneLine) {
  EXPECT_THAT(Parsed({{"HOROVOD_NUM_NCCL_STREAMS", "2"},
                      {"HOROVOD_CONTROLLER", "gloo"},
                      {"HOROVOD_RANK", "1"},
                      {"HOROVOD_WITH_PYTORCH", "1"},
                      {"HOROVOD_CYCLE_TIME", "1"}})
                  .notes,
              ElementsAre("HOROVOD_CONTROLLER, HOROVOD_NUM_NCCL_STREAMS have no effect: rondarun knows no option that "
                          "means the same (docs/rondarun.md)"));
  EXPECT_THAT(Parsed({{"HOROVOD_CPU_OPERATIONS", "mpi"}}).notes,
              ElementsAre(HasSubstr("HOROVOD_CPU_OPERATIONS has no")));
}

TEST(HorovodVariablesTest, AWrongValueNamesTheVariable) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"HOROVOD_CYCLE_TIME", "1ms"}}, "HOROVOD_CYCLE_TIME: --cycle-time-ms takes a number of milliseconds"},
      {{{"HOROVOD_FUSION_THRESHOLD", "64MiB"}}, "HOROVOD_FUSION_THRESHOLD=\"64MiB\": should be a number of bytes"},
      {{{"HOROVOD_FUSION_THRESHOLD", "99999999999999999"}},
       "HOROVOD_FUSION_THRESHOLD=\"99999999999999999\": should be a number of bytes from 0 to 1099511627776, such as"},
      {{{"HOROVOD_AUTOTUNE", "true"}}, "HOROVOD_AUTOTUNE=\"true\": should be 0 or 1"},
      {{{"HOROVOD_LOG_LEVEL", "loud"}}, "HOROVOD_LOG_LEVEL: --log-level takes"}};
  for (const auto& [environment, error] : cases) {
    const auto options = ParseArguments({"-np", "2", "x"}, Sources({.environment = environment}));
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(error));
  }
}

}  // namespace
}  // namespace ronda
