// SPDX-License-Identifier: Apache-2.0

// Runs the GPU benchmarks on fake GPUs, where their figures mean nothing. Checks that they exit without an error and
// print the lines that tools/gpu/run.sh parses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/multiprocess/launcher_harness.h"
#include "tests/testing/fake_gpu/fake_gpu.h"

namespace ronda::bench {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::vector<std::string> FakeGpus(int devices) {
  return {std::string("RONDA_CUDA_PLUGIN=") + ronda::testing::kFakeCudaPath,
          std::string("RONDA_NCCL_LIBRARY=") + ronda::testing::kFakeNcclLibraryPath,
          "FAKE_CUDA_DEVICES=" + std::to_string(devices)};
}

TEST(GpuProgramsTest, KernelsAreComparedWithCopies) {
  LauncherRun run({"-np", "1", "bench/cuda/kernels_bench", "--preset", "lenet", "--rounds", "1"},
                  {.environment = FakeGpus(1)});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  for (const std::string name : {"pack to float16", "unpack from bfloat16", "pack to fp8 E4M3"}) {
    EXPECT_THAT(run.out(), ContainsRegex("lenet, 10 tensors, " + name +
                                         ": [0-9.]+ % of the rate of a copy, which is [0-9]+ GB/s "
                                         "\\(aim: at least 85 %\\)\n"));
  }
}

class HostTimeTest : public ::testing::TestWithParam<int> {};

// host_time_bench fails if its steps do not reach a steady state. If there are two ranks, they share the only GPU, and
// use NCCL.
TEST_P(HostTimeTest, TimeOfTheHostIsThatOfLockedSteps) {
  const std::string ranks = std::to_string(GetParam());
  std::vector<std::string> environment = FakeGpus(1);
  environment.push_back("RONDA_DEVICE_BACKEND=nccl");
  LauncherRun run({"-np", ranks, "bench/cuda/host_time_bench", "--preset", "lenet", "--blocks", "2", "--steps", "10"},
                  {.environment = environment});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  for (const std::string way : {"one by one", "as a group"}) {
    EXPECT_THAT(run.out(), ContainsRegex("CPU time of an allreduce of lenet's 10 tensors, " + way + ", " + ranks +
                                         " ranks?: [0-9.]+ us, in [0-9.]+ buckets \\(aim: under 60 us\\)\n"));
  }
}

TEST_P(HostTimeTest, AdjacentGradientsAreMeasuredToo) {
  std::vector<std::string> environment = FakeGpus(1);
  environment.insert(environment.end(), {"RONDA_DEVICE_BACKEND=nccl", "RONDA_REDUCE_IN_PLACE=1"});
  LauncherRun run({"-np", std::to_string(GetParam()), "bench/cuda/host_time_bench", "--preset", "lenet", "--blocks",
                   "2", "--steps", "10", "--places", "adjacent", "--only", "group"},
                  {.environment = environment});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.out(), AllOf(HasSubstr("elapsed us"), HasSubstr("lenet's 10 tensors, as a group")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostTimeTest, ::testing::Values(1, 2));

TEST(GpuProgramsTest, WithoutAGpuTheySaySo) {
  for (const char* program : {"bench/cuda/kernels_bench", "bench/cuda/host_time_bench"}) {
    LauncherRun run({"-np", "1", program}, {.environment = FakeGpus(0)});
    EXPECT_EQ(run.Finish(), 0) << run.err();
    EXPECT_THAT(run.out(), HasSubstr("no GPU: no CUDA device: "));
  }
}

TEST(GpuProgramsTest, MistakesAreUsageErrors) {
  for (const char* program : {"bench/cuda/kernels_bench", "bench/cuda/host_time_bench"}) {
    LauncherRun run({"-np", "1", program, "--rounds", "0"}, {.environment = FakeGpus(1)});
    EXPECT_EQ(run.Finish(), 2) << run.err();
  }
}

}  // namespace
}  // namespace ronda::bench
