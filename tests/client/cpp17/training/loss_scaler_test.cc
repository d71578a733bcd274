// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/loss_scaler.hpp"

#include <limits>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ronda::training::LossScaler;
using ronda::training::LossScalerOptions;
using ::testing::HasSubstr;

TEST(LossScalerTest, GrowsAfterAnIntervalOfGoodSteps) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  for (int step = 0; step < 1999; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 2 * 65536);
}

TEST(LossScalerTest, AnOverflowHalvesTheScaleAndBeginsTheIntervalAnew) {
  LossScalerOptions options;
  options.growth_interval = 3;
  LossScaler scaler(options);
  scaler.update(false);
  scaler.update(false);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScalerTest, StaysBetweenItsLimits) {
  LossScalerOptions options;
  options.initial = options.maximum = 4;
  options.minimum = 3;
  options.growth_interval = 1;
  LossScaler scaler(options);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 4);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 3);
}

TEST(LossScalerTest, AnOverflowAtTheSmallestScaleIsAnErrorThatNamesTheGradient) {
  LossScalerOptions options;
  options.initial = 1;
  LossScaler scaler(options);
  const ronda::Status status = scaler.try_update(true, "fc1/weight");
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), HasSubstr("gradient 'fc1/weight' overflows at the smallest scale"));
}

TEST(LossScalerTest, GoesOnFromItsState) {
  LossScalerOptions options;
  options.growth_interval = 2;
  LossScaler first(options), second(options);
  first.update(true);
  first.update(false);
  second.set_state(first.state());
  second.update(false);
  EXPECT_EQ(second.scale(), 65536);
  EXPECT_THROW(second.set_state({0, 0}), ronda::Error);
}

TEST(LossScalerTest, RefusesOptionsThatAreOutOfRange) {
  for (const auto change : {+[](LossScalerOptions& o) { o.initial = 0; }, +[](LossScalerOptions& o) { o.growth = 0.5; },
                            +[](LossScalerOptions& o) { o.backoff = 1; }, +[](LossScalerOptions& o) { o.minimum = 0; },
                            +[](LossScalerOptions& o) { o.growth_interval = 0; }}) {
    LossScalerOptions options;
    change(options);
    EXPECT_THROW(LossScaler{options}, ronda::Error);
  }
}

struct Sgd {
  void step() { ++steps; }
  int steps = 0;
};

// All ranks skip the same step, name the same gradient, and have the same scale afterwards.
TEST(LossScalerTest, FollowsAnOptimizerWhoseGradientsOverflowOnOneRank) {
  ronda::run_threads(3, [] {
    std::vector<float> fine(2, 1), risky(2, 1);
    Sgd sgd;
    ronda::DistributedOptimizerOptions options;
    options.skip_on_overflow = true;
    ronda::DistributedOptimizer optimizer(sgd, {ronda::tensor("fine", fine), ronda::tensor("risky", risky)}, options);
    LossScaler scaler;
    for (int step = 0; step < 3; ++step) {
      risky.assign(2, 1);
      if (step == 1 && ronda::rank() == 1) risky[0] = std::numeric_limits<float>::infinity();
      optimizer.gradient_ready("fine");
      optimizer.gradient_ready("risky");
      optimizer.step();
      EXPECT_EQ(optimizer.overflowed_gradient(), step == 1 ? "risky" : "");
      scaler.update(optimizer.overflowed(), optimizer.overflowed_gradient());
    }
    EXPECT_EQ(sgd.steps, 2);
    EXPECT_EQ(scaler.scale(), 32768);
  });
}

}  // namespace
