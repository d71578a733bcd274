// SPDX-License-Identifier: Apache-2.0

// Tests jobs that use the fake GPUs through Ronda's real plugin, which calls stand-ins for CUDA's libraries.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

std::string Path(const std::string& file) { return std::filesystem::absolute("tests/testing/" + file); }

void ExpectThreeRanksOver(const std::string& backend, std::vector<std::string> environment) {
  environment.push_back("RONDA_CUDA_PLUGIN=" + Path("fake_cudart/libronda_cuda_on_fakes.so"));
  environment.push_back("FAKE_CUDA_LIBRARY=" + Path("fake_cuda/libfake_cuda.so"));
  environment.push_back("RONDA_NCCL_LIBRARY=" + Path("fake_nccl/libfake_nccl.so"));
  environment.insert(environment.end(),
                     {"RONDA_LOG_LEVEL=info", "DEVICE_RANKS_LARGE_STEPS=1", "FAKE_CUDA_DELAY_SEED=4"});
  LauncherRun run({"-np", "3", "tests/multiprocess/device_ranks"}, {.environment = std::move(environment)});
  EXPECT_EQ(run.Finish(), 0) << run.out() << run.err();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(run.out(), HasSubstr(absl::StrCat("rank ", rank, " of 3: ok\n"))) << run.err();
  }
  EXPECT_THAT(run.err(), HasSubstr("go over " + backend));
}

TEST(PluginRanksTest, RanksWithADeviceEachGoOverNccl) { ExpectThreeRanksOver("nccl", {"FAKE_CUDA_DEVICES=3"}); }

TEST(PluginRanksTest, RanksThatShareADeviceGoThroughTheHost) {
  ExpectThreeRanksOver("staged", {"FAKE_CUDA_DEVICES=1"});
}

// The three fake devices are parts (MIG instances) of one GPU.
TEST(PluginRanksTest, PartsOfAGpuGoOverAnNcclThatTellsThemApart) {
  ExpectThreeRanksOver("staged", {"FAKE_CUDA_DEVICES=3", "FAKE_CUDA_PARTS=3", "FAKE_NCCL_VERSION=23004"});
  ExpectThreeRanksOver("nccl", {"FAKE_CUDA_DEVICES=3", "FAKE_CUDA_PARTS=3", "FAKE_NCCL_VERSION=23007"});
}

// With FAKE_CUDA_STRICT=1, freeing memory and launching kernels that are not loaded wait for the device. With
// FAKE_CUDA_STRICT=2, allocating memory waits, too.
TEST(PluginRanksTest, DevicesMayWaitWhereCudaMay) {
  ExpectThreeRanksOver("nccl", {"FAKE_CUDA_DEVICES=3", "FAKE_CUDA_STRICT=1"});
  ExpectThreeRanksOver("staged", {"FAKE_CUDA_DEVICES=1", "FAKE_CUDA_STRICT=2"});
}

}  // namespace
}  // namespace ronda
