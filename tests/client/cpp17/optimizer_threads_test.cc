// SPDX-License-Identifier: Apache-2.0

// Tests the options of DistributedOptimizer, with ranks that are threads.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// An optimizer that counts the gradients that it gets.
struct Recorder {
  void step() { ++steps; }
  int steps = 0;
};

using Options = ronda::DistributedOptimizerOptions;

TEST(OptimizerThreadsTest, PredividingChangesWhatOverflowsAndNotTheAverage) {
  ronda::run_threads(kRanks, [] {
    // The sum of three gradients is too large for fp16, but their average is not.
    std::vector<float> gradients = {30000, 30000};
    Recorder recorder;
    Options options;
    options.compression = ronda::Compression::fp16;
    options.gradient_predivide_factor = kRanks;
    ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("w", gradients)}, options);
    optimizer.gradient_ready("w");
    optimizer.step();
    EXPECT_THAT(gradients, Each(::testing::FloatNear(30000, 32)));
  });
}

TEST(OptimizerThreadsTest, AllRanksLeaveAStepOutThatOverflowedOnOne) {
  ronda::run_threads(kRanks, [] {
    std::vector<float> fine(2), risky(2);
    Recorder recorder;
    Options options;
    options.skip_on_overflow = true;
    ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("fine", fine), ronda::tensor("risky", risky)},
                                          options);
    for (int step = 0; step < 4; ++step) {
      fine.assign(2, 1);
      risky.assign(2, 1);
      if (step == 1 && ronda::rank() == 2) risky[1] = std::numeric_limits<float>::infinity();
      if (step == 2 && ronda::rank() == 0) risky[0] = std::nanf("");
      optimizer.gradient_ready("fine");
      optimizer.gradient_ready("risky");
      optimizer.step();
      EXPECT_EQ(optimizer.overflowed(), step == 1 || step == 2) << step;
    }
    EXPECT_EQ(recorder.steps, 2);
    EXPECT_EQ(optimizer.skipped_steps(), 2);
  });
}

TEST(OptimizerThreadsTest, ErrorFeedbackKeepsSmallGradientsAlive) {
  ronda::run_threads(2, [] {
    // In a block that also contains 1000, fp8 rounds 0.1 to zero. After some steps, the residual is large enough for
    // the value to be sent.
    double arrived = 0;
    std::vector<float> gradients(2);
    Recorder recorder;
    Options options;
    options.compression = ronda::Compression::fp8_e4m3;
    options.error_feedback = true;
    ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("w", gradients)}, options);
    for (int step = 0; step < 100; ++step) {
      gradients = {1000, 0.1f};
      optimizer.gradient_ready("w");
      optimizer.step();
      arrived += gradients[1];
    }
    EXPECT_NEAR(arrived, 10, 5);
  });
}

TEST(OptimizerThreadsTest, GradientsOfAGroupTravelTogether) {
  for (const bool by_name : {false, true}) {
    ronda::run_threads(kRanks, [by_name] {
      std::vector<float> a(2), b(2), c(2);
      Recorder recorder;
      Options options;
      options.op = ronda::Op::Sum;
      if (by_name) {
        options.groups = {{"a", "c"}};
      } else {
        options.group_count = 2;
      }
      ronda::DistributedOptimizer optimizer(
          recorder, {ronda::tensor("a", a), ronda::tensor("b", b), ronda::tensor("c", c)}, options);
      for (int step = 0; step < 3; ++step) {
        for (auto* gradients : {&a, &b, &c}) gradients->assign(2, 1);
        optimizer.gradient_ready("c");
        EXPECT_THAT(optimizer.try_gradient_ready("c").message(), HasSubstr("more than 1 time"));
        optimizer.gradient_ready("a");
        if (step > 0) optimizer.gradient_ready("b");
        optimizer.step();
        EXPECT_THAT(a, Each(kRanks));
        EXPECT_THAT(b, Each(step > 0 ? kRanks : 0)) << "what was not announced is zero";
        EXPECT_THAT(c, Each(kRanks));
      }
      EXPECT_EQ(recorder.steps, 3);
    });
  }
}

// In the first step, each gradient is submitted as soon as it is ready. If it were submitted together with its
// neighbour, as in later steps, the wait for the first gradient would never end.
TEST(OptimizerThreadsTest, EachGradientOfTheFirstStepTravelsAtOnce) {
  ronda::run_threads(kRanks, [] {
    std::vector<float> early(2, 1), late(2, 1);
    Recorder recorder;
    Options options;
    options.op = ronda::Op::Sum;
    ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("late", late), ronda::tensor("early", early)},
                                          options);
    optimizer.gradient_ready("early");
    while (ronda::statistics().tensors < 1) std::this_thread::yield();
    EXPECT_THAT(early, Each(kRanks));
    optimizer.gradient_ready("late");
    optimizer.step();
    EXPECT_THAT(late, Each(kRanks));
  });
}

TEST(OptimizerThreadsTest, TheFirstGradientThatOverflowedIsNamed) {
  ronda::run_threads(kRanks, [] {
    std::vector<std::vector<float>> values(4, std::vector<float>(2, 1));
    std::vector<ronda::Tensor> gradients;
    for (std::size_t i = 0; i < values.size(); ++i) {
      gradients.push_back(ronda::tensor("g" + std::to_string(i), values[i]));
    }
    Recorder recorder;
    Options options;
    options.skip_on_overflow = true;
    options.groups = {{"g3", "g0"}};
    ronda::DistributedOptimizer optimizer(recorder, gradients, options);
    for (int step = 0; step < 4; ++step) {
      for (std::vector<float>& each : values) each.assign(2, 1);
      if (step % 2 == 1 && ronda::rank() == step % kRanks) values[3][0] = values[1][1] = std::nanf("");
      for (std::size_t i = values.size(); i > 0; --i) optimizer.gradient_ready(i - 1);
      optimizer.step();
      EXPECT_EQ(optimizer.overflowed_gradient(), step % 2 == 1 ? "g1" : "");
    }
    EXPECT_EQ(recorder.steps, 2);
  });
}

// Gradient "a" is reduced alone. Gradients "b" and "c" are reduced together.
TEST(OptimizerThreadsTest, GradientsAreReducedWhereTheyHaveMovedTo) {
  ronda::run_threads(kRanks, [] {
    std::vector<float> first(3, -1);
    Recorder recorder;
    Options options;
    options.groups = {{"b", "c"}};
    options.op = ronda::Op::Sum;
    ronda::DistributedOptimizer optimizer(
        recorder, {ronda::tensor("a", &first[0]), ronda::tensor("b", &first[1]), ronda::tensor("c", &first[2])},
        options);
    std::vector<float> moved = {1, 2, 3};
    for (std::size_t i = 0; i < moved.size(); ++i) optimizer.gradient_ready_at(i, &moved[i]);
    float elsewhere = 5;
    EXPECT_EQ(optimizer.try_gradient_ready_at(1, &elsewhere).code(), RONDA_ERROR_INVALID_ARGUMENT);
    optimizer.step();
    EXPECT_THAT(moved, ElementsAre(kRanks * 1, kRanks * 2, kRanks * 3));
    EXPECT_THAT(first, Each(-1));
    EXPECT_EQ(elsewhere, 5);
    EXPECT_EQ(optimizer.gradients()[1].data, &moved[1]);
  });
}

TEST(OptimizerThreadsTest, GradientMayGetAnotherDtypeAndShapeBetweenSteps) {
  ronda::run_threads(kRanks, [] {
    std::vector<float> narrow(2), other(3);
    Recorder recorder;
    ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("w", narrow), ronda::tensor("v", other)});
    for (const std::size_t count : {5u, 1u}) {
      narrow.assign(2, static_cast<float>(ronda::rank()));
      optimizer.redefine(0, RONDA_FLOAT32, {2});
      optimizer.gradient_ready_at(0, narrow.data());
      EXPECT_THAT(optimizer.try_redefine(1, RONDA_FLOAT64, {3}).message(),
                  HasSubstr("gradient 'v' gets another dtype or shape during a step: call step() first"));
      optimizer.step();
      EXPECT_THAT(narrow, Each(1));
      std::vector<double> wide(count, ronda::rank());
      optimizer.redefine(0, RONDA_FLOAT64, {static_cast<std::int64_t>(count)});
      optimizer.gradient_ready_at(0, wide.data());
      optimizer.step();
      EXPECT_THAT(wide, Each(1));
    }
    EXPECT_THAT(optimizer.try_redefine(2, RONDA_FLOAT32, {1}).message(), HasSubstr("there is no gradient 2 among 2"));
  });
}

TEST(OptimizerThreadsTest, AGroupFailsAsAWhole) {
  ronda::run_threads(2, [] {
    std::vector<float> good(4, 1), odd(ronda::rank() == 1 ? 5 : 4, 1);
    Recorder recorder;
    Options options;
    options.group_count = 1;
    ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("good", good), ronda::tensor("odd", odd)}, options);
    const ronda::Status status = optimizer.try_step();
    EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH);
    EXPECT_THAT(status.message(), HasSubstr("'odd'"));
    EXPECT_EQ(recorder.steps, 0);
  });
}

TEST(OptimizerThreadsTest, ProcessSetsTrainApart) {
  ronda::run_threads(4, [] {
    const ronda::ProcessSet lower = ronda::add_process_set({0, 1}), upper = ronda::add_process_set({2, 3});
    std::vector<float> gradients = {static_cast<float>(ronda::rank())};
    Recorder recorder;
    Options options;
    options.call = {lower.included() ? lower : upper};
    ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("w", gradients)}, options);
    optimizer.gradient_ready("w");
    optimizer.step();
    EXPECT_THAT(gradients, ElementsAre(lower.included() ? 0.5f : 2.5f));
    std::vector<float> weights = {static_cast<float>(ronda::rank())};
    ronda::broadcast_parameters({ronda::tensor("v", weights)}, lower.included() ? 1 : 3, options.call);
    EXPECT_THAT(weights, ElementsAre(lower.included() ? 1 : 3));
  });
}

}  // namespace
