// SPDX-License-Identifier: Apache-2.0

// Runs cuda_mnist as its users do, but on a fake GPU (host_device.cc). Checks that it learns the same parameters as
// lenet_mnist, and prints the right output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/examples/cuda_mnist/training.h"
#include "tests/examples/lenet_mnist/few_digits.h"
#include "tests/multiprocess/launcher_harness.h"
#include "tests/testing/fake_gpu/fake_gpu.h"

namespace cuda_mnist {
namespace {

using ::lenet::FewDigits;
using ::ronda::LauncherRun;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kOnFakeGpus[] = "tests/examples/cuda_mnist/cuda_mnist_on_host";

// Returns the environment variables that select the fake CUDA and the fake NCCL, and `backend`.
std::vector<std::string> Environment(const std::string& backend) {
  return {std::string("RONDA_CUDA_PLUGIN=") + ronda::testing::kFakeCudaPath,
          std::string("RONDA_NCCL_LIBRARY=") + ronda::testing::kFakeNcclLibraryPath, "RONDA_DEVICE_BACKEND=" + backend};
}

class CudaMnistRanksTest : public ::testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(CudaMnistRanksTest, LearnsWhatTheCpuLearns) {
  const auto& [ranks, backend] = GetParam();
  ExpectThoseOfTheCpu(Train(kOnFakeGpus, ranks, Environment(backend)));
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaMnistRanksTest,
                         ::testing::Values(std::tuple(1, "nccl"), std::tuple(2, "nccl"), std::tuple(2, "staged")));

TEST(CudaMnistProgram, PrintsTheEpochAndTheAccuracy) {
  const FewDigits digits(64, 10);
  LauncherRun run({"-np", "2", kOnFakeGpus, "--data", digits.path(), "--epochs=1"},
                  {.environment = Environment("nccl")});
  ASSERT_EQ(run.Finish(), 0) << run.err();
  const std::vector<std::string> lines = ronda::Lines(run.out());
  ASSERT_EQ(lines.size(), 3u) << run.out();
  EXPECT_EQ(lines[0], "[0]<stdout>: LeNet-5 on 2 ranks, a GPU that is not there: 64 digits in batches of 32");
  EXPECT_THAT(lines[1], MatchesRegex("\\[0\\]<stdout>: epoch 1/1: loss [0-9]+\\.[0-9]+, [0-9]+ images/s"));
  EXPECT_THAT(lines[2], MatchesRegex("\\[0\\]<stdout>: test accuracy [01]\\.[0-9]+ \\(2 ranks, [0-9]+ s\\)"));
}

TEST(CudaMnistProgram, BenchPrintsWhatCommunicationCosts) {
  for (const char* ranks : {"1", "2"}) {
    LauncherRun run({"-np", ranks, kOnFakeGpus, "--bench", "--batch-size=2", "--steps=3"},
                    {.environment = Environment("nccl")});
    ASSERT_EQ(run.Finish(), 0) << run.err();
    EXPECT_THAT(run.out(), HasSubstr(" images/s; "));
    EXPECT_THAT(run.out(), HasSubstr(" without communication: it adds "));
    const bool is_alone = std::string(ranks) == "1";
    EXPECT_EQ(run.out().find(" % (aim: under 3 %)") != std::string::npos, is_alone) << run.out();
  }
}

}  // namespace
}  // namespace cuda_mnist
