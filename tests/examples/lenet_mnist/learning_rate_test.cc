#include "examples/lenet_mnist/learning_rate.h"

#include <gtest/gtest.h>

namespace lenet {
namespace {

TEST(LearningRate, RisesToTheScaledRateThenFallsToZero) {
  const LearningRate rate{.base = 0.1, .scale = 3, .warmup_steps = 4, .total_steps = 14};
  EXPECT_NEAR(rate.At(0), 0.15, 1e-12);
  EXPECT_NEAR(rate.At(1), 0.2, 1e-12);
  EXPECT_NEAR(rate.At(3), 0.3, 1e-12);
  EXPECT_NEAR(rate.At(4), 0.3, 1e-12);
  EXPECT_NEAR(rate.At(9), 0.15, 1e-12);
  EXPECT_NEAR(rate.At(13), 0.03, 1e-12);
  EXPECT_EQ(rate.At(14), 0);
  EXPECT_EQ(rate.At(1000), 0);
}

TEST(LearningRate, OneRankNeedsNoWarmUp) {
  const LearningRate rate{.base = 0.1, .scale = 1, .warmup_steps = 2, .total_steps = 4};
  EXPECT_NEAR(rate.At(0), 0.1, 1e-12);
  EXPECT_NEAR(rate.At(2), 0.1, 1e-12);
  EXPECT_NEAR(rate.At(3), 0.05, 1e-12);
}

TEST(LearningRate, WarmUpMayFillAllOfTraining) {
  const LearningRate rate{.base = 0.1, .scale = 2, .warmup_steps = 4, .total_steps = 4};
  EXPECT_NEAR(rate.At(3), 0.2, 1e-12);
  EXPECT_EQ(rate.At(4), 0);
}

}  // namespace
}  // namespace lenet
