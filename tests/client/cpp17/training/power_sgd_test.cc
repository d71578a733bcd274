// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/power_sgd.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cpp17/training/gradient_samples.h"

namespace {

using ronda::training::PowerSgd;
using ronda::training::PowerSgdOptions;
using ronda_test::distance;
using ronda_test::fill;
using ronda_test::gradient_of;
using ronda_test::mean_of;
using ::testing::Each;
using ::testing::HasSubstr;

PowerSgdOptions of_rank(int rank) {
  PowerSgdOptions options;
  options.rank = rank;
  options.min_saving = 0;
  return options;
}

class PowerSgdRanksTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PowerSgdRanksTest, ::testing::Values(1, 2, 4));

TEST_P(PowerSgdRanksTest, AnApproximationOfFullRankIsTheMean) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> wide(4 * 9), high(9 * 4);
    PowerSgd power({ronda::tensor("wide", wide.data(), {4, 9}), ronda::tensor("high", high.data(), {9, 2, 2})},
                   of_rank(4));
    for (int step = 0; step < 5; ++step) {
      fill(wide, 2 * step);
      fill(high, 2 * step + 1);
      const std::vector<float> mean_wide = mean_of(wide), mean_high = mean_of(high);
      power.reduce();
      EXPECT_LT(distance(wide, mean_wide), 1e-5) << step;
      EXPECT_LT(distance(high, mean_high), 1e-5) << step;
    }
  });
}

TEST_P(PowerSgdRanksTest, AMeanOfLowRankTravelsWhole) {
  ronda::run_threads(GetParam(), [] {
    // The gradient of each process is a matrix of rank 1. The mean of the gradients is therefore a matrix whose rank is
    // at most the number of processes.
    const std::vector<double> left = gradient_of<double>(0, 8), right = gradient_of<double>(1, 10);
    std::vector<double> gradient(80);
    for (std::size_t i = 0; i < 80; ++i) gradient[i] = left[i / 10] * right[i % 10];
    const std::vector<double> mean = mean_of(gradient);
    PowerSgd power({ronda::tensor("w", gradient.data(), {8, 10})}, of_rank(ronda::size()));
    power.reduce();
    EXPECT_LT(distance(gradient, mean), 1e-12);
  });
}

TEST_P(PowerSgdRanksTest, AllRanksGetTheSameBitsAndLessThanTheMean) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> gradient(20 * 30);
    PowerSgd power({ronda::tensor("w", gradient.data(), {20, 30})});
    for (int step = 0; step < 5; ++step) {
      fill(gradient, step);
      const std::vector<float> mean = mean_of(gradient);
      power.reduce();
      EXPECT_TRUE(ronda_test::same_on_all_ranks(gradient));
      EXPECT_GT(distance(gradient, mean), 0.1) << "nothing is lost: it is not in use";
    }
  });
}

TEST_P(PowerSgdRanksTest, ErrorFeedbackKeepsTheRestOfTheGradient) {
  ronda::run_threads(GetParam(), [] {
    constexpr std::size_t kCount = 12 * 7;
    std::vector<double> gradient(kCount), arrived(kCount), given(kCount);
    PowerSgd power({ronda::tensor("w", gradient.data(), {12, 7})}, of_rank(1));
    for (int step = 0; step < 20; ++step) {
      fill(gradient, step);
      const std::vector<double> mean = mean_of(gradient);
      power.reduce();
      std::vector<double> accounted = mean_of(ronda_test::part_of<double>(power.state(), "ronda.training.power_sgd.e"));
      for (std::size_t i = 0; i < kCount; ++i) {
        given[i] += mean[i];
        arrived[i] += gradient[i];
        accounted[i] += arrived[i];
      }
      EXPECT_LT(distance(accounted, given), 1e-12) << step;
    }
    EXPECT_GT(distance(arrived, given), 0.1);
  });
}

TEST_P(PowerSgdRanksTest, SmallGradientsTravelWholeAndTheBytesAreCounted) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> large(64 * 100), small(4 * 4), bias(64);
    PowerSgdOptions options;
    options.rank = 3;
    PowerSgd power({ronda::tensor("large", large.data(), {64, 10, 10}), ronda::tensor("small", small.data(), {4, 4}),
                    ronda::tensor("bias", bias)},
                   options);
    fill(small, 0);
    fill(bias, 1);
    const std::vector<float> mean_small = mean_of(small), mean_bias = mean_of(bias);
    const std::uint64_t before = ronda::statistics().wire_bytes;
    power.reduce();
    EXPECT_EQ(small, mean_small);
    EXPECT_EQ(bias, mean_bias);
    EXPECT_EQ(power.bytes_sent(), 4 * (3 * (64 + 100) + 16 + 64));
    EXPECT_EQ(power.dense_bytes(), 4 * (64 * 100 + 16 + 64));
    EXPECT_EQ(ronda::statistics().wire_bytes - before, power.bytes_sent());
  });
}

TEST_P(PowerSgdRanksTest, GradientsAreAveragedWholeBeforeTheStartStep) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> gradient(20 * 30);
    PowerSgdOptions options = of_rank(1);
    options.start_step = 2;
    PowerSgd power({ronda::tensor("w", gradient.data(), {20, 30})}, options);
    for (int step = 0; step < 4; ++step) {
      fill(gradient, step);
      const std::vector<float> mean = mean_of(gradient);
      power.reduce();
      EXPECT_EQ(gradient == mean, step < 2) << step;
      EXPECT_EQ(power.bytes_sent() == power.dense_bytes(), step < 2) << step;
    }
  });
}

TEST_P(PowerSgdRanksTest, AnOverflowOnOneRankIsSeenByAllAndForgotten) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> gradient(6 * 8), bias(4);
    PowerSgd power({ronda::tensor("w", gradient.data(), {6, 8}), ronda::tensor("b", bias)}, of_rank(2));
    std::vector<float> errors;
    for (int step = 0; step < 5; ++step) {
      fill(gradient, step);
      bias.assign(4, 1);
      if (step == 1 && ronda::rank() == 0) gradient[13] = std::numeric_limits<float>::infinity();
      if (step == 3 && ronda::rank() == ronda::size() - 1) bias[2] = std::numeric_limits<float>::quiet_NaN();
      errors = ronda_test::part_of<float>(power.state(), "ronda.training.power_sgd.error");
      power.reduce();
      EXPECT_EQ(power.overflowed(), step == 1 || step == 3) << step;
      if (!power.overflowed()) continue;
      EXPECT_EQ(ronda_test::part_of<float>(power.state(), "ronda.training.power_sgd.error"), errors);
    }
    EXPECT_TRUE(std::isfinite(ronda::training::global_norm({ronda::tensor("w", gradient)})));
  });
}

// After a zero gradient, for example of a frozen layer, PowerSgd has no direction from which to start the next step.
TEST_P(PowerSgdRanksTest, AGradientMayBeZeroForSomeSteps) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> gradient(4 * 4);
    PowerSgd power({ronda::tensor("w", gradient.data(), {4, 4})}, of_rank(4));
    power.reduce();
    EXPECT_THAT(gradient, Each(0));
    fill(gradient, 0);
    const std::vector<float> mean = mean_of(gradient);
    power.reduce();
    EXPECT_LT(distance(gradient, mean), 1e-5);
  });
}

TEST_P(PowerSgdRanksTest, GoesOnFromTheStateOfRankZero) {
  ronda::run_threads(GetParam(), [] {
    std::vector<double> first(6 * 8), second(6 * 8);
    PowerSgd running({ronda::tensor("w", first.data(), {6, 8})}, of_rank(1));
    PowerSgd resumed({ronda::tensor("w", second.data(), {6, 8})}, of_rank(1));
    for (int step = 0; step < 3; ++step) {
      fill(first, step);
      running.reduce();
    }
    running.average_state();
    ronda_test::copy_state(running.state(), resumed.state());
    ronda::broadcast_parameters(resumed.state(), 0);
    for (int step = 3; step < 6; ++step) {
      fill(first, step);
      fill(second, step);
      running.reduce();
      resumed.reduce();
      EXPECT_EQ(first, second) << step;
    }
  });
}

TEST(PowerSgdTest, AveragesOverAProcessSet) {
  ronda::run_threads(4, [] {
    const ronda::ProcessSet lower = ronda::add_process_set({0, 1}), upper = ronda::add_process_set({2, 3});
    std::vector<float> gradient(16, static_cast<float>(ronda::rank()));
    PowerSgdOptions options = of_rank(2);
    options.call = {lower.included() ? lower : upper};
    PowerSgd power({ronda::tensor("w", gradient.data(), {4, 4})}, options);
    power.reduce();
    EXPECT_THAT(gradient, Each(::testing::FloatNear(lower.included() ? 0.5f : 2.5f, 1e-5f)));
  });
}

TEST(PowerSgdTest, RefusesWhatIsOutOfRange) {
  EXPECT_THROW(PowerSgd({}, of_rank(0)), ronda::Error);
  std::vector<std::int32_t> whole(4);
  try {
    PowerSgd power({ronda::tensor("whole", whole)});
    FAIL();
  } catch (const ronda::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("gradient 'whole' is neither of float32"));
  }
}

}  // namespace
