// SPDX-License-Identifier: Apache-2.0

// Tests the bookkeeping of DistributedOptimizer in a job of one rank. optimizer_world_test tests several ranks.
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An optimizer that records the gradients of each step.
struct RecordingOptimizer {
  void step() {
    ++steps;
    seen_a = *a;
    seen_b = *b;
  }

  const std::vector<float>* a;
  const std::vector<float>* b;
  int steps = 0;
  std::vector<float> seen_a, seen_b;
};

class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerTest() { ronda::init(); }
  ~OptimizerTest() override { EXPECT_TRUE(ronda::try_shutdown().ok()); }

  std::vector<ronda::Tensor> gradients() { return {ronda::tensor("a", a_), ronda::tensor("b", b_)}; }

  std::vector<float> a_ = {1, 2};
  std::vector<float> b_ = {3};
  RecordingOptimizer inner_{&a_, &b_, 0, {}, {}};
};

TEST_F(OptimizerTest, ConstructionRefusesNamesThatCannotWork) {
  const auto construct = [this](std::vector<ronda::Tensor> gradients, int passes) {
    ronda::DistributedOptimizerOptions options;
    options.backward_passes_per_step = passes;
    try {
      ronda::DistributedOptimizer optimizer(inner_, std::move(gradients), options);
    } catch (const ronda::Error& error) {
      EXPECT_EQ(error.code(), RONDA_ERROR_INVALID_ARGUMENT);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(construct({ronda::tensor("a", a_), ronda::tensor("a", b_)}, 1), HasSubstr("two gradients are named 'a'"));
  EXPECT_THAT(construct({ronda::tensor("a", a_), ronda::tensor("", b_)}, 1), HasSubstr("gradient 1 has no name"));
  EXPECT_THAT(construct(gradients(), 0), HasSubstr("backward_passes_per_step is 0"));
  EXPECT_EQ(construct(gradients(), 1), "");
}

TEST_F(OptimizerTest, OptionsThatContradictEachOtherAreExplained) {
  using Options = ronda::DistributedOptimizerOptions;
  const auto refusal = [this](const std::function<void(Options*)>& change) {
    Options options;
    change(&options);
    try {
      ronda::DistributedOptimizer optimizer(inner_, gradients(), options);
    } catch (const ronda::Error& error) {
      EXPECT_EQ(error.code(), RONDA_ERROR_INVALID_ARGUMENT);
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(refusal([](Options* o) { o->gradient_predivide_factor = 0; }), HasSubstr("gradient_predivide_factor"));
  EXPECT_THAT(refusal([](Options* o) { o->prescale = 0; }), HasSubstr("prescale must be finite, and not 0"));
  EXPECT_THAT(refusal([](Options* o) { o->postscale = INFINITY; }), HasSubstr("postscale must be finite, and not 0"));
  EXPECT_THAT(refusal([](Options* o) {
                o->gradient_predivide_factor = 2;
                o->op = ronda::Op::Sum;
              }),
              HasSubstr("Op::Average"));
  EXPECT_THAT(refusal([](Options* o) { o->group_count = 3; }), HasSubstr("group_count is 3, for 2 gradients"));
  EXPECT_THAT(refusal([](Options* o) { o->group_count = -1; }), HasSubstr("group_count is -1"));
  EXPECT_THAT(refusal([](Options* o) { o->groups = {{"a", "c"}}; }), HasSubstr("'c'"));
  EXPECT_THAT(refusal([](Options* o) { o->groups = {{"a"}, {"b", "a"}}; }), HasSubstr("'a' is in a group twice"));
  EXPECT_THAT(refusal([](Options* o) {
                o->groups = {{"a"}};
                o->group_count = 1;
              }),
              HasSubstr("either"));
  EXPECT_EQ(refusal([](Options* o) { o->groups = {{"b"}}; }), "none");
}

TEST_F(OptimizerTest, AStepAppliesTheReducedGradients) {
  ronda::DistributedOptimizerOptions options;
  options.prescale = 10;
  ronda::DistributedOptimizer optimizer(inner_, gradients(), options);
  optimizer.gradient_ready("b");
  optimizer.gradient_ready(0);
  optimizer.step();
  EXPECT_EQ(inner_.steps, 1);
  EXPECT_THAT(inner_.seen_a, ElementsAre(10, 20));
  EXPECT_THAT(inner_.seen_b, ElementsAre(30));
}

TEST_F(OptimizerTest, AGradientThatWasNotAnnouncedIsZero) {
  ronda::DistributedOptimizer optimizer(inner_, gradients());
  optimizer.gradient_ready("a");
  optimizer.step();
  EXPECT_THAT(inner_.seen_a, ElementsAre(1, 2));
  EXPECT_THAT(inner_.seen_b, ElementsAre(0));
}

TEST_F(OptimizerTest, StepsFollowEachOther) {
  ronda::DistributedOptimizer optimizer(inner_, gradients());
  for (int step = 1; step <= 3; ++step) {
    optimizer.gradient_ready("a");
    optimizer.gradient_ready("b");
    optimizer.step();
    EXPECT_EQ(inner_.steps, step);
  }
}

TEST_F(OptimizerTest, AGradientTravelsAfterItsLastPass) {
  ronda::DistributedOptimizerOptions options;
  options.backward_passes_per_step = 2;
  options.prescale = 0.5;
  ronda::DistributedOptimizer optimizer(inner_, gradients(), options);
  optimizer.gradient_ready("a");
  EXPECT_THAT(a_, ElementsAre(1, 2)) << "the gradient has left after the first pass";
  for (float& element : a_) element += 2;  // the second pass adds up
  optimizer.gradient_ready("a");
  optimizer.gradient_ready("b");  // not part of the second pass, but its sum is complete
  optimizer.step();
  EXPECT_THAT(inner_.seen_a, ElementsAre(1.5, 2));
  EXPECT_THAT(inner_.seen_b, ElementsAre(1.5));
}

TEST_F(OptimizerTest, AnnouncingTooOftenIsExplained) {
  ronda::DistributedOptimizer optimizer(inner_, gradients());
  optimizer.gradient_ready("a");
  const ronda::Status status = optimizer.try_gradient_ready("a");
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'a'"), HasSubstr("more than 1 time"), HasSubstr("call step()")));
  EXPECT_THROW(optimizer.gradient_ready(0), ronda::Error);
  optimizer.step();
  EXPECT_NO_THROW(optimizer.gradient_ready("a")) << "a new step has begun";
}

TEST_F(OptimizerTest, UnknownGradientsAreNamed) {
  ronda::DistributedOptimizer optimizer(inner_, gradients());
  EXPECT_THAT(optimizer.try_gradient_ready("c").message(), HasSubstr("there is no gradient 'c'"));
  EXPECT_THAT(optimizer.try_gradient_ready(2).message(), HasSubstr("there is no gradient 2 among 2"));
}

TEST_F(OptimizerTest, BetweenSynchronizeAndStepTheGradientsAreTheCallers) {
  ronda::DistributedOptimizer optimizer(inner_, gradients());
  optimizer.gradient_ready("a");
  optimizer.gradient_ready("b");
  optimizer.synchronize();
  a_[0] = -1;  // clipped
  optimizer.synchronize();
  EXPECT_THAT(optimizer.try_gradient_ready("a").message(), HasSubstr("after synchronize()"));
  optimizer.step();
  EXPECT_EQ(inner_.steps, 1);
  EXPECT_THAT(inner_.seen_a, ElementsAre(-1, 2));
}

TEST_F(OptimizerTest, AfterAFailedStepANewOneBegins) {
  std::vector<ronda::Tensor> broken = gradients();
  broken[1].data = nullptr;
  ronda::DistributedOptimizer optimizer(inner_, broken);
  optimizer.gradient_ready("a");
  const ronda::Status status = optimizer.try_step();
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), HasSubstr("'b'"));
  EXPECT_EQ(inner_.steps, 0) << "gradients that were not reduced have been applied";
  EXPECT_NO_THROW(optimizer.gradient_ready("a"));
}

TEST_F(OptimizerTest, AGradientWithoutDataIsExplainedAndMayComeAgain) {
  std::vector<ronda::Tensor> late = gradients();
  late[1].data = nullptr;
  ronda::DistributedOptimizer optimizer(inner_, late);
  EXPECT_THAT(optimizer.try_gradient_ready("b").message(),
              AllOf(HasSubstr("gradient 'b' has no data"), HasSubstr("gradient_ready_at()")));
  optimizer.gradient_ready_at(1, b_.data());
  optimizer.gradient_ready("a");
  optimizer.step();
  EXPECT_THAT(inner_.seen_b, ElementsAre(3));
}

TEST_F(OptimizerTest, AnOptimizerGoesOnInTheNextJob) {
  ronda::DistributedOptimizer optimizer(inner_, gradients());
  for (int job = 1; job <= 3; ++job) {
    if (job > 1) ronda::init();
    optimizer.gradient_ready("a");
    optimizer.gradient_ready("b");
    optimizer.step();
    EXPECT_EQ(inner_.steps, job);
    ronda::shutdown();
  }
  EXPECT_EQ(optimizer.try_gradient_ready("a").code(), RONDA_ERROR_NOT_INITIALIZED);
  ronda::init();
  optimizer.step();
  EXPECT_EQ(inner_.steps, 4);
}

TEST_F(OptimizerTest, WithoutGradientsAStepIsTheOptimizersAlone) {
  ronda::DistributedOptimizer optimizer(inner_, {});
  optimizer.step();
  EXPECT_EQ(inner_.steps, 1);
}

struct ThrowingOptimizer {
  void step() { throw std::logic_error("no"); }
};

TEST_F(OptimizerTest, ExceptionsOfTheOptimizerPassThrough) {
  ThrowingOptimizer throws;
  ronda::DistributedOptimizer optimizer(throws, gradients());
  EXPECT_THROW(static_cast<void>(optimizer.try_step()), std::logic_error);
  EXPECT_NO_THROW(optimizer.gradient_ready("a")) << "the step was not ended";
}

}  // namespace
