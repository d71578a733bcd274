// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/loss.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lenet {
namespace {

TEST(SoftmaxCrossEntropy, EqualLogitsCostTheLogarithmOfTheirNumber) {
  Matrix gradient;
  EXPECT_NEAR(SoftmaxCrossEntropy(Matrix::Constant(3, 10, 4.0f), {0, 5, 9}, &gradient), std::log(10.0), 1e-6);
}

TEST(SoftmaxCrossEntropy, IsTheMeanOverTheBatch) {
  Matrix logits(2, 2);
  logits << 0, 0, 0, std::log(3.0f);
  Matrix gradient;
  EXPECT_NEAR(SoftmaxCrossEntropy(logits, {0, 1}, &gradient), (std::log(2.0) + std::log(4.0 / 3)) / 2, 1e-6);
  const Matrix expected = (Matrix(2, 2) << -0.25f, 0.25f, 0.125f, -0.125f).finished();
  EXPECT_TRUE(gradient.isApprox(expected, 1e-6f)) << gradient;
}

TEST(SoftmaxCrossEntropy, LargeLogitsDoNotOverflow) {
  Matrix logits(2, 3);
  logits << 1000, -1000, 0, -5000, -5000, -5000;
  Matrix gradient;
  EXPECT_NEAR(SoftmaxCrossEntropy(logits, {0, 2}, &gradient), std::log(3.0) / 2, 1e-6);
  EXPECT_TRUE(gradient.allFinite()) << gradient;
}

TEST(SoftmaxCrossEntropy, GradientAgreesWithDifferences) {
  Matrix logits(2, 4);
  logits << 0.3f, -1.2f, 2.0f, 0.1f, 1.5f, 0.2f, -0.7f, 0.9f;
  Matrix gradient;
  SoftmaxCrossEntropy(logits, {1, 0}, &gradient);
  constexpr float kStep = 1.0f / 256;
  for (Eigen::Index i = 0; i < logits.size(); ++i) {
    Matrix ignored;
    Matrix above = logits;
    above.data()[i] += kStep;
    Matrix below = logits;
    below.data()[i] -= kStep;
    const double difference =
        SoftmaxCrossEntropy(above, {1, 0}, &ignored) - SoftmaxCrossEntropy(below, {1, 0}, &ignored);
    EXPECT_NEAR(gradient.data()[i], difference / (2 * kStep), 1e-4) << i;
  }
}

TEST(CountCorrect, CountsRowsWhoseLargestLogitIsTheirLabel) {
  Matrix logits(3, 3);
  logits << 1, 2, 0, 5, 4, 3, 0, 0, 1;
  EXPECT_EQ(CountCorrect(logits, {1, 0, 2}), 3u);
  EXPECT_EQ(CountCorrect(logits, {1, 1, 2}), 2u);
  EXPECT_EQ(CountCorrect(logits, {0, 2, 0}), 0u);
}

}  // namespace
}  // namespace lenet
