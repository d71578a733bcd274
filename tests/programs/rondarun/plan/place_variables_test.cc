// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/place_variables.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::UnorderedElementsAre;

constexpr MpirunPlace kMpirun = {.rank = "M_RANK", .size = "M_SIZE", .local_rank = "M_LOCAL", .local_size = "M_LOCALS"};

TEST(PlaceVariablesTest, APlaceIsToldInTheWordsOfEachLauncher) {
  const Topology place = {
      .rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .cross_rank = 1, .cross_size = 2, .hostname = "b"};
  EXPECT_THAT(PlaceVariables(place, 1),
              UnorderedElementsAre("RONDA_RANK=5", "RONDA_SIZE=8", "RONDA_LOCAL_RANK=1", "RONDA_LOCAL_SIZE=4",
                                   "RONDA_CROSS_RANK=1", "RONDA_CROSS_SIZE=2", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
                                   "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "HOROVOD_RANK=5", "HOROVOD_SIZE=8",
                                   "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=4", "HOROVOD_CROSS_RANK=1",
                                   "HOROVOD_CROSS_SIZE=2"));
  for (const std::string& variable : PlaceVariables(place, 1)) {
    EXPECT_TRUE(IsPlaceVariable(variable.substr(0, variable.find('=')))) << variable;
  }
  EXPECT_FALSE(IsPlaceVariable("MASTER_ADDR"));
  EXPECT_FALSE(IsPlaceVariable("RONDA_JOB_ID"));
}

TEST(PlaceVariablesTest, AMemberHasALocalPlaceAndNoRankForLife) {
  EXPECT_THAT(SlotVariables(1, 4),
              UnorderedElementsAre("RONDA_RANK=1", "RONDA_SIZE=4", "RONDA_LOCAL_RANK=1", "RONDA_LOCAL_SIZE=4",
                                   "RONDA_CROSS_RANK=0", "RONDA_CROSS_SIZE=1", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
                                   "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=4"));
}

// Returns the environment of a command that a shell runs after `script`.
std::string EnvironmentAfter(const std::string& given, const std::string& script) {
  const std::string command =
      absl::StrCat("env -i ", given, " /bin/sh -c '", script,
                   "exec env' | grep -E \"^(RONDA|HOROVOD|RANK|LOCAL|WORLD|GROUP|ronda)\" | sort"
                   " | tr \"\\n\" \" \"");
  FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return "no shell";
  std::string output(2000, '\0');
  output.resize(fread(output.data(), 1, output.size(), pipe));
  pclose(pipe);
  return output;
}

TEST(PlaceScriptTest, AShellTurnsMpirunsVariablesIntoThoseOfThePlace) {
  EXPECT_EQ(EnvironmentAfter("M_RANK=5 M_SIZE=8 M_LOCAL=1 M_LOCALS=4", PlaceScript(kMpirun, 8, 4)),
            "GROUP_RANK=1 HOROVOD_CROSS_RANK=1 HOROVOD_CROSS_SIZE=2 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=4 "
            "HOROVOD_RANK=5 HOROVOD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 RANK=5 RONDA_CROSS_RANK=1 "
            "RONDA_CROSS_SIZE=2 RONDA_LOCAL_RANK=1 RONDA_LOCAL_SIZE=4 RONDA_RANK=5 RONDA_SIZE=8 WORLD_SIZE=8 ");
}

TEST(PlaceScriptTest, UnknownPlaceIsNotSet) {
  EXPECT_EQ(EnvironmentAfter("M_RANK=5 M_SIZE=8", PlaceScript(kMpirun, 8, 0)),
            "HOROVOD_RANK=5 HOROVOD_SIZE=8 RANK=5 RONDA_RANK=5 RONDA_SIZE=8 WORLD_SIZE=8 ");
}

}  // namespace
}  // namespace ronda
