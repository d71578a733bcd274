// SPDX-License-Identifier: Apache-2.0

// Tests jobs of processes whose tensors are in GPU memory. The GPUs are fake, unless RONDA_TEST_CUDA_PLUGIN names a
// plugin for real ones.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/cuda/device.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr char kProgram[] = "tests/multiprocess/device_ranks";

bool IsReal() { return std::getenv("RONDA_TEST_CUDA_PLUGIN") != nullptr; }

std::string Plugin() {
  return IsReal() ? std::getenv("RONDA_TEST_CUDA_PLUGIN")
                  : std::filesystem::absolute("tests/testing/fake_cuda/libfake_cuda.so").string();
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the environment variable that selects the fake NCCL. The machine's real NCCL could not use fake devices.
std::string FakeNccl() {
  return "RONDA_NCCL_LIBRARY=" + std::filesystem::absolute("tests/testing/fake_nccl/libfake_nccl.so").string();
}

// Returns OK if the devices are fake, or if there is an NCCL for the real ones. Otherwise returns the reason.
absl::Status NcclIsThere() {
  if (!IsReal()) return absl::OkStatus();
  return LoadNccl(Variable("RONDA_NCCL_LIBRARY"), Variable("CUDA_HOME"), Variable("VIRTUAL_ENV")).status();
}

class DeviceRanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!IsReal()) return;
    const absl::StatusOr<const ronda_cuda_plugin*> plugin = LoadCudaPlugin(Plugin());
    ASSERT_EQ(plugin.status(), absl::OkStatus());
    const absl::Status status = CountDevices(**plugin).status();
    if (!status.ok()) GTEST_SKIP() << status.message();
  }

  // Returns options for a job with `environment`, and with the variables that select the fake or real devices.
  static LauncherRun::Options With(std::vector<std::string> environment) {
    environment.push_back("RONDA_CUDA_PLUGIN=" + Plugin());
    if (!IsReal()) environment.push_back(FakeNccl());
    environment.emplace_back("RONDA_LOG_LEVEL=info");
    environment.push_back(absl::StrCat("DEVICE_RANKS_LARGE_STEPS=", IsReal() ? 10 : 1));
    return {.environment = std::move(environment)};
  }

  // With real devices, the ranks find the real NCCL by themselves or through RONDA_NCCL_LIBRARY. They need
  // RONDA_DEVICE_BACKEND, because NCCL is not the default for ranks that share a device.
  static LauncherRun::Options OverNccl(std::vector<std::string> environment) {
    if (IsReal()) environment.emplace_back("RONDA_DEVICE_BACKEND=nccl");
    return With(std::move(environment));
  }

  static void ExpectAllOk(LauncherRun& run, int ranks) {
    EXPECT_EQ(run.Finish(), 0) << run.out() << run.err();
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_THAT(run.out(), HasSubstr(absl::StrCat("rank ", rank, " of ", ranks, ": ok\n"))) << run.err();
    }
  }
};

TEST_F(DeviceRanksTest, OneRankHasItsDeviceToItself) {
  LauncherRun run({"-np", "1", kProgram}, With({}));
  ExpectAllOk(run, 1);
}

TEST_F(DeviceRanksTest, RanksThatShareADeviceGoThroughTheHost) {
  LauncherRun run({"-np", "3", kProgram}, With({"FAKE_CUDA_DEVICES=1", "FAKE_CUDA_DELAY_SEED=5"}));
  ExpectAllOk(run, 3);
  EXPECT_THAT(run.err(), HasSubstr("go over staged"));
}

TEST_F(DeviceRanksTest, RanksThatShareADeviceMapEachOthersMemory) {
  LauncherRun run({"-np", "3", kProgram}, With({"FAKE_CUDA_DEVICES=1", "FAKE_CUDA_DELAY_SEED=7", "FAKE_CUDA_STRICT=2",
                                                "CUDA_DEVICE_MAX_CONNECTIONS=1", "RONDA_DEVICE_BACKEND=peer"}));
  ExpectAllOk(run, 3);
  EXPECT_THAT(run.err(), HasSubstr("go over peer, as RONDA_DEVICE_BACKEND says"));
}

TEST_F(DeviceRanksTest, RanksWithADeviceEachMapEachOthersMemory) {
  const int ranks = IsReal() ? *CountDevices(**LoadCudaPlugin(Plugin())) : 3;
  if (ranks < 2) GTEST_SKIP() << "there is one device";
  LauncherRun run({"-np", std::to_string(ranks), kProgram},
                  With({"FAKE_CUDA_DEVICES=3", "FAKE_CUDA_DELAY_SEED=8", "RONDA_DEVICE_BACKEND=peer"}));
  ExpectAllOk(run, ranks);
}

// All operations fail with the same error on all ranks. The error names the rank and the reason.
TEST_F(DeviceRanksTest, RanksWhoseDevicesCannotMapEachOthersMemoryAreRefused) {
  if (IsReal()) GTEST_SKIP() << "real devices have this ability";
  const auto expect_refusal = [](std::vector<std::string> environment, const std::string& text) {
    environment.emplace_back("RONDA_DEVICE_BACKEND=peer");
    LauncherRun run({"-np", "2", kProgram}, With(std::move(environment)));
    EXPECT_NE(run.Finish(), 0);
    EXPECT_THAT(run.out() + run.err(), HasSubstr(text));
  };
  expect_refusal({"FAKE_CUDA_DEVICES=1", "FAKE_CUDA_SHARING=0"},
                 "rank 0: cuda:0: sharing memory with other ranks: operation not supported");
  expect_refusal({"FAKE_CUDA_DEVICES=2", "FAKE_CUDA_SHARING=1"},
                 "rank 0 cannot share the memory of its GPU with other ranks: cuda:0: mapping the memory of other "
                 "ranks: invalid device ordinal");
}

TEST_F(DeviceRanksTest, RanksWithADeviceEachGoOverNccl) {
  if (const absl::Status nccl = NcclIsThere(); !nccl.ok()) GTEST_SKIP() << nccl.message();
  const int ranks = IsReal() ? *CountDevices(**LoadCudaPlugin(Plugin())) : 3;
  if (ranks < 2) GTEST_SKIP() << "there is one device";
  LauncherRun run({"-np", std::to_string(ranks), kProgram},
                  OverNccl({"FAKE_CUDA_DEVICES=3", "FAKE_CUDA_DELAY_SEED=6"}));
  ExpectAllOk(run, ranks);
  EXPECT_THAT(run.err(), HasSubstr("go over nccl"));
}

TEST_F(DeviceRanksTest, RanksWhoseBuffersAreWindowsOfNcclGetTheSameSums) {
  if (const absl::Status nccl = NcclIsThere(); !nccl.ok()) GTEST_SKIP() << nccl.message();
  const int ranks = IsReal() ? *CountDevices(**LoadCudaPlugin(Plugin())) : 3;
  if (ranks < 2) GTEST_SKIP() << "there is one device";
  LauncherRun run({"-np", std::to_string(ranks), kProgram}, OverNccl({"FAKE_CUDA_DEVICES=3", "RONDA_NCCL_WINDOWS=1"}));
  ExpectAllOk(run, ranks);
  EXPECT_THAT(run.err(), HasSubstr("go over nccl"));
}

// NCCL treats ranks with different values of NCCL_HOSTID as ranks on different hosts, and lets them share a device.
TEST_F(DeviceRanksTest, RanksOfHostsByNcclsAccountShareADeviceOverNccl) {
  if (const absl::Status nccl = NcclIsThere(); !nccl.ok()) GTEST_SKIP() << nccl.message();
  LauncherRun run(Shell(2, absl::StrCat("NCCL_HOSTID=rank$RONDA_RANK exec ", kProgram)),
                  OverNccl({"FAKE_CUDA_DEVICES=1", "NCCL_SOCKET_IFNAME=lo"}));
  ExpectAllOk(run, 2);
  EXPECT_THAT(run.err(), HasSubstr("go over nccl"));
}

}  // namespace
}  // namespace ronda
