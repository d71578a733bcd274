// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cuda_mnist {
namespace {

using ::testing::HasSubstr;

TEST(CudaMnistFlagsTest, BenchIsAFlagBesideThoseOfLenetMnist) {
  const Flags flags = ParseFlags({"--steps=7", "--bench", "--batch-size", "64"});
  EXPECT_EQ(flags.work, Flags::Work::kBenchmark);
  EXPECT_EQ(flags.shared.training.max_steps, 7u);
  EXPECT_EQ(flags.shared.training.batch_size, 64u);
  EXPECT_EQ(ParseFlags({}).work, Flags::Work::kTrain);
  EXPECT_THROW(ParseFlags({"--bench=1"}), lenet::UsageError);
}

TEST(CudaMnistFlagsTest, CheckpointsAreForLenetMnist) {
  EXPECT_THROW(ParseFlags({"--checkpoints", "folder"}), lenet::UsageError);
}

TEST(CudaMnistFlagsTest, HelpHasAllFlags) {
  for (const char* flag : {"rondarun -np 2 cuda_mnist", "--bench", "--steps", "--dump-parameters"}) {
    EXPECT_THAT(Usage(), HasSubstr(flag));
  }
}

}  // namespace
}  // namespace cuda_mnist
