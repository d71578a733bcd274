// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/learning_rate.hpp"

#include <cmath>
#include <limits>

#include "client/ronda.hpp"
#include "gtest/gtest.h"

namespace {

using ronda::training::LearningRate;
using ronda::training::Plateau;
using ronda::training::PlateauOptions;

TEST(LearningRateTest, IsTheBaseWithoutParts) {
  EXPECT_EQ(LearningRate(0.1).at(0), 0.1);
  EXPECT_EQ(LearningRate(0.1).at(1000000), 0.1);
}

TEST(LearningRateTest, WarmsUpFromTheRateOfOneRankToThatOfAll) {
  const LearningRate rate = LearningRate(0.1).scale_by(8).warm_up(70);
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(10), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(70), 0.8);
  EXPECT_DOUBLE_EQ(rate.at(71), 0.8);
}

TEST(LearningRateTest, DecaysAtItsSteps) {
  const LearningRate rate = LearningRate(1).decay_at({10, 20}, 0.5);
  EXPECT_EQ(rate.at(9), 1);
  EXPECT_EQ(rate.at(10), 0.5);
  EXPECT_EQ(rate.at(20), 0.25);
}

TEST(LearningRateTest, FallsAsACosineAfterTheWarmUp) {
  const LearningRate rate = LearningRate(1).warm_up(100).cosine(300, 0.2);
  EXPECT_DOUBLE_EQ(rate.at(100), 1);
  EXPECT_DOUBLE_EQ(rate.at(200), 0.6);
  EXPECT_DOUBLE_EQ(rate.at(300), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(1000), 0.2);
}

TEST(LearningRateTest, RefusesNumbersThatAreOutOfRange) {
  EXPECT_THROW(LearningRate(-1), ronda::Error);
  EXPECT_THROW(LearningRate(NAN), ronda::Error);
  EXPECT_THROW(LearningRate(1).scale_by(0), ronda::Error);
  EXPECT_THROW(LearningRate(1).warm_up(-1), ronda::Error);
  EXPECT_THROW(LearningRate(1).decay_at({2, 1}), ronda::Error);
  EXPECT_THROW(LearningRate(1).cosine(10, 2), ronda::Error);
}

TEST(LearningRateTest, FallsAlongALine) {
  const LearningRate rate = LearningRate(1).warm_up(100).linear(300);
  EXPECT_DOUBLE_EQ(rate.at(99), 1);
  EXPECT_DOUBLE_EQ(rate.at(250), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(301), 0);
}

TEST(PlateauTest, LowersTheRateWhenTheAverageOverTheRanksStopsToFall) {
  ronda::run_threads(2, [] {
    PlateauOptions options;
    options.factor = 0.5;
    options.patience = 1;
    options.least = 0.25;
    Plateau plateau(options);
    // Rank 0 adds a number to the metric, and rank 1 subtracts it. Plateau uses only the average over the ranks.
    const double sign = ronda::rank() == 0 ? 1 : -1;
    EXPECT_EQ(plateau.update(10 + sign), 1);
    EXPECT_EQ(plateau.update(9 + 2 * sign), 1);
    EXPECT_EQ(plateau.update(9 + 3 * sign), 1);
    EXPECT_EQ(plateau.update(9 + 4 * sign), 0.5);
    EXPECT_EQ(plateau.update(8), 0.5);
    for (int i = 0; i < 10; ++i) plateau.update(8);
    EXPECT_EQ(plateau.factor(), 0.25);
  });
}

TEST(PlateauTest, MetricThatIsNotFiniteIsNoImprovement) {
  ronda::run_threads(2, [] {
    PlateauOptions options;
    options.factor = 0.5;
    options.patience = 1;
    Plateau plateau(options);
    EXPECT_EQ(plateau.update(ronda::rank() == 0 ? std::numeric_limits<double>::quiet_NaN() : 1), 1);
    EXPECT_EQ(plateau.update(std::numeric_limits<double>::infinity()), 0.5);
    for (int i = 10; i > 0; --i) EXPECT_EQ(plateau.update(i), 0.5) << "the metric falls";
    EXPECT_EQ(plateau.update(std::numeric_limits<double>::quiet_NaN()), 0.5);
    EXPECT_EQ(plateau.update(std::numeric_limits<double>::quiet_NaN()), 0.25);
  });
}

TEST(PlateauTest, RefusesOptionsThatAreOutOfRange) {
  PlateauOptions options;
  options.factor = 1;
  EXPECT_THROW(Plateau{options}, ronda::Error);
}

}  // namespace
