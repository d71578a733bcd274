// SPDX-License-Identifier: Apache-2.0

// Tests messages and collectives over each installed MPI. The MPI's own launcher starts the ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

std::string FileOf(absl::string_view name) { return std::filesystem::absolute(std::string(name)); }

struct Case {
  MpiFlavor flavor;
  int size;
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.flavor == MpiFlavor::kOpenMpi ? "OpenMpi" : "Mpich", info.param.size);
}

class MpirunTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!HasMpirun(GetParam().flavor)) GTEST_SKIP() << "its mpirun is not installed";
  }

  static std::string Plugin() { return FileOf(absl::StrCat("runtime/mpi/", PluginName(GetParam().flavor))); }
  static std::string Flavor() { return GetParam().flavor == MpiFlavor::kOpenMpi ? "open_mpi" : "mpich"; }
};

INSTANTIATE_TEST_SUITE_P(Mpis, MpirunTest,
                         ::testing::ValuesIn(std::vector<Case>{{MpiFlavor::kOpenMpi, 1},
                                                               {MpiFlavor::kOpenMpi, 2},
                                                               {MpiFlavor::kOpenMpi, 4},
                                                               {MpiFlavor::kMpich, 2},
                                                               {MpiFlavor::kMpich, 3}}),
                         NameOf);

TEST_P(MpirunTest, EveryRankPassesItsTests) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  const ProcessResult result =
      RunUnderMpirun(GetParam().flavor, GetParam().size,
                     {FileOf("tests/runtime/mpi/mpi_ranks"), Plugin(), Flavor(), absl::StrCat(seed)});
  EXPECT_EQ(result.exit_code, 0) << "seed " << seed << ", signal " << result.signal << ", said:\n" << result.output;
  EXPECT_TRUE(absl::StrContains(result.output, "Running 8 tests")) << result.output;
}

class OwnMpiTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(ThreadLevels, OwnMpiTest, ::testing::Values("funneled", "serialized"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(OwnMpiTest, ProgramThatInitializesMpiItselfKeepsIt) {
  if (!HasMpirun(MpiFlavor::kOpenMpi)) GTEST_SKIP() << "its mpirun is not installed";
  const ProcessResult result = RunUnderMpirun(
      MpiFlavor::kOpenMpi, 2, {FileOf("tests/runtime/mpi/own_mpi"), FileOf("runtime/mpi/libronda_mpi.so"), GetParam()});
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

// One of the two ranks does not exit. mpirun kills it when the other one has ended without MPI_Finalize.
TEST(LeavingTest, RankOfAFailedJobEndsWithoutTheOthers) {
  if (!HasMpirun(MpiFlavor::kOpenMpi)) GTEST_SKIP() << "its mpirun is not installed";
  const ProcessResult result = RunUnderMpirun(
      MpiFlavor::kOpenMpi, 2, {FileOf("tests/runtime/mpi/leaving_rank"), FileOf("runtime/mpi/libronda_mpi.so")});
  EXPECT_EQ(result.signal, 0) << result.output;
  EXPECT_TRUE(absl::StrContains(result.output, "left\n")) << result.output;
  EXPECT_FALSE(absl::StrContains(result.output, "FAILED")) << result.output;
}

}  // namespace
}  // namespace ronda::testing
