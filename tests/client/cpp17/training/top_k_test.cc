// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/top_k.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cpp17/training/gradient_samples.h"

namespace {

using ronda::training::TopK;
using ronda::training::TopKOptions;
using ronda_test::distance;
using ronda_test::fill;
using ronda_test::mean_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All gradients are compressed, without momentum.
TopKOptions of_density(double density) {
  TopKOptions options;
  options.density = density;
  options.momentum = 0;
  options.min_elements = 0;
  return options;
}

class TopKRanksTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TopKRanksTest, ::testing::Values(1, 2, 4));

TEST_P(TopKRanksTest, ADensityOfOneIsSgdWithMomentum) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> gradient(100), velocity(100);
    TopKOptions options;
    options.density = 1;
    options.momentum = 0.5;
    TopK top_k({ronda::tensor("w", gradient)}, options);
    for (int step = 0; step < 5; ++step) {
      fill(gradient, step);
      const std::vector<float> mean = mean_of(gradient);
      for (std::size_t i = 0; i < mean.size(); ++i) velocity[i] = 0.5f * velocity[i] + mean[i];
      top_k.reduce();
      EXPECT_EQ(gradient, velocity) << step;
    }
  });
}

TEST_P(TopKRanksTest, AMessageWithAllElementsIsTheMean) {
  ronda::run_threads(GetParam(), [] {
    std::vector<double> gradient(50);
    TopKOptions options = of_density(0.1);
    options.initial_density = 1;
    options.warm_up_steps = 10;
    TopK top_k({ronda::tensor("w", gradient)}, options);
    fill(gradient, 0);
    const std::vector<double> mean = mean_of(gradient);
    top_k.reduce();
    EXPECT_EQ(gradient, mean);
  });
}

TEST_P(TopKRanksTest, ElementsThatDoNotTravelAreAddedUp) {
  ronda::run_threads(GetParam(), [] {
    constexpr std::size_t kCount = 200;
    std::vector<double> gradient(kCount), arrived(kCount), given(kCount);
    TopK top_k({ronda::tensor("w", gradient)}, of_density(0.05));
    for (int step = 0; step < 20; ++step) {
      fill(gradient, step);
      const std::vector<double> mean = mean_of(gradient);
      top_k.reduce();
      EXPECT_TRUE(ronda_test::same_on_all_ranks(gradient));
      std::vector<double> accounted = mean_of(ronda_test::part_of<double>(top_k.state(), "ronda.training.top_k.v"));
      for (std::size_t i = 0; i < kCount; ++i) {
        given[i] += mean[i];
        arrived[i] += gradient[i];
        accounted[i] += arrived[i];
      }
      EXPECT_EQ(accounted, given) << step;
    }
    EXPECT_GT(distance(arrived, given), 0.1) << "nothing is left out: it is not in use";
  });
}

TEST_P(TopKRanksTest, SmallGradientsTravelWholeAndTheBytesAreCounted) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> large(5000), small(100);
    std::vector<double> precise(2000);
    TopKOptions options = of_density(0.01);
    options.min_elements = 1000;
    TopK top_k({ronda::tensor("large", large), ronda::tensor("small", small), ronda::tensor("precise", precise)},
               options);
    fill(small, 0);
    const std::vector<float> mean = mean_of(small);
    const std::uint64_t before = ronda::statistics().wire_bytes;
    top_k.reduce();
    EXPECT_EQ(small, mean);
    EXPECT_EQ(top_k.bytes_sent(), 8 + 50 * (4 + 4) + 20 * (4 + 8) + 4 * 100);
    EXPECT_EQ(top_k.dense_bytes(), 4 * 5000 + 4 * 100 + 8 * 2000);
    EXPECT_EQ(ronda::statistics().wire_bytes - before, top_k.bytes_sent()) << "gathers are counted, too";
  });
}

TEST_P(TopKRanksTest, EachRanksGradientsAreClippedToItsPartOfTheNorm) {
  ronda::run_threads(GetParam(), [] {
    std::vector<double> gradient = {30, 40};
    TopKOptions options = of_density(1);
    options.clip_norm = 5;
    TopK top_k({ronda::tensor("w", gradient)}, options);
    top_k.reduce();
    EXPECT_NEAR(gradient[0], 3 / std::sqrt(ronda::size()), 1e-12);
    EXPECT_NEAR(gradient[1], 4 / std::sqrt(ronda::size()), 1e-12);
  });
}

TEST_P(TopKRanksTest, AnOverflowOnOneRankIsSeenByAllAndForgotten) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> gradient(40), bias(4);
    TopKOptions options;
    options.density = 0.1;
    options.min_elements = 10;
    TopK top_k({ronda::tensor("w", gradient), ronda::tensor("b", bias)}, options);
    for (int step = 0; step < 30; ++step) {
      fill(gradient, step);
      bias.assign(4, 1);
      if (step == 1 && ronda::rank() == 0) gradient[13] = std::numeric_limits<float>::infinity();
      if (step == 3 && ronda::rank() == ronda::size() - 1) bias[2] = std::numeric_limits<float>::quiet_NaN();
      top_k.reduce();
      EXPECT_EQ(top_k.overflowed(), step == 1 || step == 3) << step;
    }
    EXPECT_TRUE(std::isfinite(ronda::training::global_norm({ronda::tensor("w", gradient), ronda::tensor("b", bias)})));
  });
}

// Each rank's values are finite, but their sum over two ranks is not.
TEST_P(TopKRanksTest, TheMeanOfLargeValuesDoesNotOverflow) {
  ronda::run_threads(GetParam(), [] {
    const float large = std::numeric_limits<float>::max();
    std::vector<float> gradient = {large, 1, 0, 0};
    TopK top_k({ronda::tensor("w", gradient)}, of_density(0.5));
    top_k.reduce();
    EXPECT_FALSE(top_k.overflowed());
    EXPECT_THAT(gradient, ElementsAre(large, 1, 0, 0));
  });
}

// The values that rank 0 has not sent overflow in the second step, because it adds the gradient to them.
TEST_P(TopKRanksTest, AStepThatOverflowsLosesOnlyTheValueThatIsInfinite) {
  ronda::run_threads(GetParam(), [] {
    const bool is_first = ronda::rank() == 0;
    const double large = std::numeric_limits<double>::max();
    std::vector<double> gradient = {large, is_first ? large : 0, 1, 0};
    std::vector<double> bias = {1};
    TopKOptions options = of_density(0.25);
    options.min_elements = 2;
    options.momentum = 0.5;
    options.factor_masking = false;
    TopK top_k({ronda::tensor("w", gradient), ronda::tensor("b", bias)}, options);
    top_k.reduce();
    ASSERT_FALSE(top_k.overflowed());
    EXPECT_THAT(bias, ElementsAre(1));

    gradient = {0, is_first ? large / 4 : 0, 1, 0};
    bias = {1};
    top_k.reduce();
    EXPECT_TRUE(top_k.overflowed());
    const auto kept = ronda_test::part_of<double>(top_k.state(), "ronda.training.top_k.v");
    EXPECT_THAT(kept, ElementsAre(large / 2, 0, 2.5, 0)) << "the values of both steps";
    const auto velocity = ronda_test::part_of<double>(top_k.state(), "ronda.training.top_k.u.b");
    EXPECT_THAT(velocity, ElementsAre(1)) << "no momentum for a step that is skipped";
  });
}

TEST_P(TopKRanksTest, GoesOnFromTheStateOfRankZero) {
  ronda::run_threads(GetParam(), [] {
    std::vector<double> first(60), second(60);
    TopKOptions options = of_density(0.1);
    options.start_step = 1;
    options.momentum = 0.9;
    options.warm_up_steps = 5;
    TopK running({ronda::tensor("w", first)}, options);
    TopK resumed({ronda::tensor("w", second)}, options);
    for (int step = 0; step < 3; ++step) {
      fill(first, step);
      running.reduce();
    }
    running.average_state();
    ronda_test::copy_state(running.state(), resumed.state());
    ronda::broadcast_parameters(resumed.state(), 0);
    for (int step = 3; step < 8; ++step) {
      fill(first, step);
      fill(second, step);
      running.reduce();
      resumed.reduce();
      EXPECT_EQ(first, second) << step;
    }
  });
}

TEST(TopKTest, TheLargestElementsOfEachRankTravel) {
  ronda::run_threads(2, [] {
    std::vector<float> gradient(4);
    TopK top_k({ronda::tensor("w", gradient)}, of_density(0.25));
    const auto reduce = [&](const std::vector<float>& values) {
      gradient = values;
      top_k.reduce();
      return gradient;
    };
    const bool first = ronda::rank() == 0;
    EXPECT_THAT(reduce(first ? std::vector<float>{1, -4, 0, 3} : std::vector<float>{2, 2, 2, 2}),
                ElementsAre(1, -2, 0, 0))
        << "of equal ones, the first";
    EXPECT_THAT(reduce({0, 0, 0, 0}), ElementsAre(0, 1, 0, 1.5f));
    EXPECT_THAT(reduce({0, 0, 0, 0}), ElementsAre(0.5f, 0, 1, 0));
  });
}

TEST(TopKTest, MomentumIsCorrectedAndMasked) {
  for (const bool masking : {true, false}) {
    ronda::run_threads(1, [masking] {
      std::vector<float> gradient = {4, 1};
      TopKOptions options = of_density(0.5);
      options.momentum = 0.5;
      options.factor_masking = masking;
      TopK top_k({ronda::tensor("w", gradient)}, options);
      top_k.reduce();
      EXPECT_THAT(gradient, ElementsAre(4, 0));
      gradient = {0, 1};  // u = {masked ? 0 : 2, 1.5}, v = {masked ? 0 : 2, 2.5}
      top_k.reduce();
      EXPECT_THAT(gradient, ElementsAre(0, 2.5f));
      gradient = {0, 0};
      top_k.reduce();  // u = {masked ? 0 : 1, masked ? 0 : 0.75}, v = {masked ? 0 : 3, the same as u}
      EXPECT_THAT(gradient, ElementsAre(masking ? 0 : 3, 0));
    });
  }
}

TEST(TopKTest, TheDensityFallsExponentiallyInTheWarmUp) {
  TopKOptions options;
  options.density = 0.25 / 256;
  options.warm_up_steps = 4;
  const TopK top_k({}, options);
  EXPECT_DOUBLE_EQ(top_k.density_at(0), 0.25);
  EXPECT_DOUBLE_EQ(top_k.density_at(1), 0.25 / 4);
  EXPECT_DOUBLE_EQ(top_k.density_at(3), 0.25 / 64);
  EXPECT_DOUBLE_EQ(top_k.density_at(4), 0.25 / 256);
  EXPECT_DOUBLE_EQ(top_k.density_at(1000), 0.25 / 256);
}

TEST_P(TopKRanksTest, GradientsTravelWholeBeforeTheStartStep) {
  ronda::run_threads(GetParam(), [] {
    std::vector<float> gradient(100), velocity(100);
    TopKOptions options = of_density(0.1);
    options.momentum = 0.5;
    options.start_step = 3;
    TopK top_k({ronda::tensor("w", gradient)}, options);
    for (int step = 0; step < 4; ++step) {
      fill(gradient, step);
      const std::vector<float> mean = mean_of(gradient);
      for (std::size_t i = 0; i < mean.size(); ++i) velocity[i] = 0.5f * velocity[i] + mean[i];
      top_k.reduce();
      EXPECT_EQ(gradient == velocity, step < 3) << step;
      EXPECT_EQ(top_k.bytes_sent(), step < 3 ? 400 : 8 + 10 * 8) << step;
    }
  });
}

TEST_P(TopKRanksTest, GradientWithoutElementsChangesNothing) {
  ronda::run_threads(GetParam(), [] {
    std::vector<double> large(200), none;
    TopK top_k({ronda::tensor("none", none), ronda::tensor("large", large)}, of_density(0.1));
    fill(large, 0);
    top_k.reduce();
    EXPECT_TRUE(ronda_test::same_on_all_ranks(large));
    EXPECT_EQ(top_k.state().size(), 4) << "steps, u of both gradients, v of the large one";
  });
}

TEST(TopKTest, RankThatHasJoinedIsNotCounted) {
  for (const ronda::Absent absent : {ronda::Absent::not_counted, ronda::Absent::counted_as_zeros}) {
    ronda::run_threads(2, [absent] {
      std::vector<float> large(2000, 1), small(10, 1);
      TopKOptions options = of_density(0.5);
      options.min_elements = 1000;
      TopK top_k({ronda::tensor("large", large), ronda::tensor("small", small)}, options);
      if (ronda::rank() == 0) {
        top_k.reduce();
        const float mean = absent == ronda::Absent::not_counted ? 1 : 0.5;
        EXPECT_EQ(large[0], mean);
        EXPECT_EQ(small[0], mean);
      }
      ronda::join({}, absent);
    });
  }
}

TEST(TopKTest, ARankWithOtherGradientsIsNamed) {
  ronda::run_threads(2, [] {
    std::vector<float> a(4), b(6);
    const bool first = ronda::rank() == 0;
    const ronda::Tensor view_a = ronda::tensor("a", a), view_b = ronda::tensor("b", b);
    TopK swapped(first ? std::vector<ronda::Tensor>{view_a, view_b} : std::vector<ronda::Tensor>{view_b, view_a},
                 of_density(0.25));
    const ronda::Status status = swapped.try_reduce();
    EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH);
    EXPECT_THAT(status.message(),
                HasSubstr("TopK: rank " + std::to_string(first ? 1 : 0) + " has other gradients, or another density"));
    TopK denser({view_b}, of_density(first ? 0.5 : 1.0 / 3));
    EXPECT_EQ(denser.try_reduce().code(), RONDA_ERROR_MISMATCH);
  });
}

TEST(TopKTest, RefusesWhatIsOutOfRange) {
  for (const auto change :
       {+[](TopKOptions& o) { o.density = 0; }, +[](TopKOptions& o) { o.density = 1.5; },
        +[](TopKOptions& o) { o.initial_density = 2, o.warm_up_steps = 1; }, +[](TopKOptions& o) { o.momentum = 1; },
        +[](TopKOptions& o) { o.clip_norm = -1; }, +[](TopKOptions& o) { o.warm_up_steps = -1; }}) {
    TopKOptions options;
    change(options);
    EXPECT_THROW(TopK({}, options), ronda::Error);
  }
}

}  // namespace
