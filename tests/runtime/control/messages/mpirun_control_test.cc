// SPDX-License-Identifier: Apache-2.0

// Tests the control plane over each installed MPI. The MPI's own launcher starts the ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

struct Case {
  MpiFlavor flavor;
  int size;
};

class MpirunControlTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!HasMpirun(GetParam().flavor)) GTEST_SKIP() << "its mpirun is not installed";
  }

  static ProcessResult Run(const std::vector<std::string>& scenario) {
    const bool is_mpich = GetParam().flavor == MpiFlavor::kMpich;
    const auto file = [](const std::string& name) { return std::filesystem::absolute(name).string(); };
    std::vector<std::string> command = {file("tests/runtime/control/messages/control_ranks"),
                                        file(absl::StrCat("runtime/mpi/", PluginName(GetParam().flavor))),
                                        is_mpich ? "mpich" : "open_mpi", "mpi"};
    command.insert(command.end(), scenario.begin(), scenario.end());
    return RunUnderMpirun(GetParam().flavor, GetParam().size, command);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Mpis, MpirunControlTest,
    ::testing::ValuesIn(std::vector<Case>{
        {MpiFlavor::kOpenMpi, 2}, {MpiFlavor::kOpenMpi, 4}, {MpiFlavor::kMpich, 2}, {MpiFlavor::kMpich, 4}}),
    [](const auto& info) {
      return absl::StrCat(info.param.flavor == MpiFlavor::kOpenMpi ? "OpenMpi" : "Mpich", info.param.size);
    });

TEST_P(MpirunControlTest, RoundsGoUpAndDownAndAllRanksLeaveThroughMpisEnd) {
  const ProcessResult result = Run({"rounds"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (int rank = 0; rank < GetParam().size; ++rank) {
    EXPECT_THAT(result.output, HasSubstr(absl::StrCat("rank ", rank, " has left")));
  }
}

TEST_P(MpirunControlTest, FailureIsKnownToAllRanks) {
  const int last = GetParam().size - 1;
  std::string folder = ::testing::TempDir() + "/failureXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const ProcessResult result = Run({"failure", folder});
  for (int rank = 0; rank <= last; ++rank) {
    EXPECT_THAT(ReadFile(absl::StrCat(folder, "/", rank)).value_or(result.output),
                HasSubstr(absl::StrCat("rank ", last, " (host here, pid ", last, "): on purpose")));
  }
}

}  // namespace
}  // namespace ronda::testing
