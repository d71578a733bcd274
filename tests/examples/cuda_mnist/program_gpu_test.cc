// SPDX-License-Identifier: Apache-2.0

// Tests that cuda_mnist learns the same parameters on a GPU as lenet_mnist.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/examples/cuda_mnist/training.h"
#include "tests/multiprocess/launcher_harness.h"

namespace cuda_mnist {
namespace {

constexpr char kProgram[] = "examples/cuda_mnist/cuda_mnist";
constexpr char kPlugin[] = "RONDA_CUDA_PLUGIN=runtime/cuda/libronda_cuda.so";

class CudaMnistOnAGpu : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ronda::LauncherRun run({"-np", "1", kProgram, "--steps=0"}, {.environment = {kPlugin}});
    const std::string refusal = "cuda_mnist: this needs a GPU: ";
    if (run.Finish() == 0) return;
    const std::size_t found = run.err().find(refusal);
    ASSERT_NE(found, std::string::npos) << run.err();
    GTEST_SKIP() << run.err().substr(found + refusal.size());
  }
};

// If the machine has only one GPU, two ranks share it.
TEST_P(CudaMnistOnAGpu, LearnsWhatTheCpuLearns) { ExpectThoseOfTheCpu(Train(kProgram, GetParam(), {kPlugin})); }

INSTANTIATE_TEST_SUITE_P(Ranks, CudaMnistOnAGpu, ::testing::Values(1, 2));

}  // namespace
}  // namespace cuda_mnist
