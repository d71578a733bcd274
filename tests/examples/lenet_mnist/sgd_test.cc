// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lenet {
namespace {

using ::testing::ElementsAre;

TEST(Sgd, StepsAgainstTheGradientWithMomentum) {
  Parameter weight{"w", Matrix::Constant(1, 2, 1.0f), (Matrix(1, 2) << 2, -4).finished()};
  Sgd sgd({&weight}, /*momentum=*/0.5);
  sgd.set_learning_rate(0.25);
  sgd.step();
  EXPECT_EQ(weight.value, (Matrix(1, 2) << 0.5f, 2.0f).finished());
  sgd.step();  // the velocity is 1.5 times the gradient now
  EXPECT_EQ(weight.value, (Matrix(1, 2) << -0.25f, 3.5f).finished());
}

TEST(Sgd, StateIsAllThatTheNextStepDependsOn) {
  Parameter weight{"w", Matrix::Zero(2, 3), Matrix::Ones(2, 3)};
  Sgd sgd({&weight}, /*momentum=*/0.5);
  sgd.set_learning_rate(0.25);
  sgd.step();
  const std::vector<ronda::Tensor> state = sgd.state();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "sgd.learning_rate");
  EXPECT_EQ(*static_cast<double*>(state[0].data), 0.25);
  EXPECT_EQ(state[1].name, "sgd.velocity.w");
  EXPECT_THAT(state[1].shape, ElementsAre(2, 3));
  static_cast<float*>(state[1].data)[5] = 9;  // as a broadcast would
  weight.value.setZero();
  sgd.step();
  EXPECT_EQ(weight.value(1, 2), -0.25f * (0.5f * 9 + 1));
}

}  // namespace
}  // namespace lenet
