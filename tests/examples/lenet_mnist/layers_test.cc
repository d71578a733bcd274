// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "examples/lenet_mnist/random.h"

namespace lenet {
namespace {

Matrix RandomMatrix(Eigen::Index rows, Eigen::Index cols, RandomNumbers& random) {
  Matrix matrix(rows, cols);
  for (Eigen::Index i = 0; i < matrix.size(); ++i) matrix.data()[i] = random.Uniform(1);
  return matrix;
}

double Dot(const Matrix& a, const Matrix& b) { return a.cast<double>().cwiseProduct(b.cast<double>()).sum(); }

// Returns the derivative of dot(layer(input), weights) with respect to *x, from central differences. Away from kinks, a
// layer's output is linear in each single number, and random inputs are not near kinks. So the step can be large enough
// for the precision of float.
double Difference(Layer& layer, const Matrix& input, const Matrix& weights, float* x) {
  constexpr float kStep = 1.0f / 512;
  const float before = *x;
  *x = before + kStep;
  const double above = Dot(layer.Forward(input), weights);
  *x = before - kStep;
  const double below = Dot(layer.Forward(input), weights);
  *x = before;
  return (above - below) / (2 * kStep);
}

// Compares the gradient of every input and parameter of `layer` with Difference().
void CheckGradients(Layer& layer, Matrix input, RandomNumbers& random) {
  const Matrix output = layer.Forward(input);
  const Matrix weights = RandomMatrix(output.rows(), output.cols(), random);
  layer.ComputeParameterGradients(weights);
  const Matrix input_gradient = layer.InputGradient(weights);
  ASSERT_EQ(input_gradient.rows(), input.rows());
  ASSERT_EQ(input_gradient.cols(), input.cols());
  constexpr double kTolerance = 2e-3;
  for (Eigen::Index i = 0; i < input.size(); ++i) {
    EXPECT_NEAR(input_gradient.data()[i], Difference(layer, input, weights, input.data() + i), kTolerance) << i;
  }
  for (Parameter* parameter : layer.parameters()) {
    const Matrix gradient = parameter->gradient;
    ASSERT_EQ(gradient.size(), parameter->value.size());
    for (Eigen::Index i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(gradient.data()[i], Difference(layer, input, weights, parameter->value.data() + i), kTolerance)
          << parameter->name << " " << i;
    }
  }
}

// Computes one element of a convolution directly from the definition, in double precision.
double NaiveConvolution(const Conv2d::Options& options, const Matrix& weight, const float* image, Index map, Index y,
                        Index x) {
  double sum = 0;
  for (Index channel = 0; channel < options.in_channels; ++channel) {
    for (Index ky = 0; ky < options.kernel; ++ky) {
      for (Index kx = 0; kx < options.kernel; ++kx) {
        const Index in_y = y + ky - options.padding;
        const Index in_x = x + kx - options.padding;
        if (in_y < 0 || in_y >= options.side || in_x < 0 || in_x >= options.side) continue;
        sum += double{image[(channel * options.side + in_y) * options.side + in_x]} *
               weight(map, (channel * options.kernel + ky) * options.kernel + kx);
      }
    }
  }
  return sum;
}

class Conv2dTest : public ::testing::TestWithParam<Conv2d::Options> {};

TEST_P(Conv2dTest, AgreesWithTheDefinition) {
  const Conv2d::Options& options = GetParam();
  RandomNumbers random(/*seed=*/1, /*stream=*/0);
  Conv2d layer("conv", options, random);
  layer.parameters()[1]->value.setConstant(0.5f);
  const Matrix input = RandomMatrix(2, options.in_channels * options.side * options.side, random);
  const Matrix& output = layer.Forward(input);
  const Index out_side = options.side + 2 * options.padding - options.kernel + 1;
  ASSERT_EQ(output.cols(), options.out_channels * out_side * out_side);
  for (Index i = 0; i < output.size(); ++i) {
    const Index pixel = i % output.cols();
    const double expected =
        0.5 + NaiveConvolution(options, layer.parameters()[0]->value, input.row(i / output.cols()).data(),
                               pixel / (out_side * out_side), pixel / out_side % out_side, pixel % out_side);
    EXPECT_NEAR(output.data()[i], expected, 1e-5) << i;
  }
}

TEST_P(Conv2dTest, GradientsAgreeWithDifferences) {
  const Conv2d::Options& options = GetParam();
  RandomNumbers random(/*seed=*/2, /*stream=*/0);
  Conv2d layer("conv", options, random);
  CheckGradients(layer, RandomMatrix(2, options.in_channels * options.side * options.side, random), random);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv2dTest,
    ::testing::Values(Conv2d::Options{.in_channels = 1, .out_channels = 1, .side = 1, .kernel = 1, .padding = 0},
                      Conv2d::Options{.in_channels = 1, .out_channels = 2, .side = 5, .kernel = 5, .padding = 2},
                      Conv2d::Options{.in_channels = 3, .out_channels = 2, .side = 6, .kernel = 3, .padding = 0},
                      // Here the kernel extends beyond the image at every position.
                      Conv2d::Options{.in_channels = 1, .out_channels = 2, .side = 1, .kernel = 5, .padding = 2},
                      // Here the padding is larger than the image.
                      Conv2d::Options{.in_channels = 2, .out_channels = 3, .side = 2, .kernel = 5, .padding = 4}));

TEST(Linear, ComputesAnAffineMap) {
  RandomNumbers random(/*seed=*/3, /*stream=*/0);
  Linear layer("fc", 2, 2, random);
  layer.parameters()[0]->value << 1, 2, 3, 4;
  layer.parameters()[1]->value << 10, 20;
  Matrix input(1, 2);
  input << 5, 6;
  EXPECT_EQ(layer.Forward(input), (Matrix(1, 2) << 27, 59).finished());
}

TEST(Linear, GradientsAgreeWithDifferences) {
  RandomNumbers random(/*seed=*/4, /*stream=*/0);
  Linear layer("fc", 7, 5, random);
  CheckGradients(layer, RandomMatrix(3, 7, random), random);
}

TEST(MaxPool2d, KeepsTheLargestOfFour) {
  MaxPool2d layer(/*channels=*/2, /*side=*/4);
  Matrix input(1, 32);
  input << 1, 2, 0, 0,  //
      3, 4, 0, 5,       //
      9, 8, -1, -2,     //
      7, 6, -3, -4,     //
      0, 0, 0, 0,       //
      0, 0, 0, 0,       //
      0, 0, 0, 0,       //
      1, 0, 0, 1;
  EXPECT_EQ(layer.Forward(input), (Matrix(1, 8) << 4, 5, 9, -1, 0, 0, 1, 1).finished());
}

TEST(MaxPool2d, GradientGoesToTheFirstOfEqualPixelsOnly) {
  MaxPool2d layer(/*channels=*/1, /*side=*/2);
  const Matrix input = Matrix::Constant(1, 4, 3.0f);
  layer.Forward(input);
  EXPECT_EQ(layer.InputGradient(Matrix::Constant(1, 1, 2.0f)), (Matrix(1, 4) << 2, 0, 0, 0).finished());
}

TEST(MaxPool2d, GradientsAgreeWithDifferences) {
  RandomNumbers random(/*seed=*/6, /*stream=*/0);
  MaxPool2d layer(/*channels=*/2, /*side=*/6);
  // The inputs are distinct multiples of 1/50 in irregular order. They differ by more than a step, so a step never
  // changes which pixel of a window is the largest.
  Matrix input(1, 72);
  for (int i = 0; i < 72; ++i) input(0, i) = static_cast<float>((i * 29) % 72) / 50;
  CheckGradients(layer, input, random);
}

TEST(Relu, CutsNegativeNumbersOff) {
  Relu layer;
  Matrix input(1, 3);
  input << -1, 0, 2;
  EXPECT_EQ(layer.Forward(input), (Matrix(1, 3) << 0, 0, 2).finished());
  EXPECT_EQ(layer.InputGradient(Matrix::Ones(1, 3)), (Matrix(1, 3) << 0, 0, 1).finished());
}

TEST(Layers, GradientsOfASmallerBatchDoNotRememberALargerOne) {
  RandomNumbers random(/*seed=*/8, /*stream=*/0);
  Conv2d layer("conv", {.in_channels = 1, .out_channels = 2, .side = 4, .kernel = 3, .padding = 1}, random);
  const Matrix large = RandomMatrix(5, 16, random);
  const Matrix small = large.topRows(2);
  const Matrix weights = RandomMatrix(5, 32, random);
  layer.Forward(small);
  layer.ComputeParameterGradients(weights.topRows(2));
  const Matrix expected = layer.parameters()[0]->gradient;
  layer.Forward(large);
  layer.ComputeParameterGradients(weights);
  EXPECT_NE(layer.parameters()[0]->gradient, expected);
  layer.Forward(small);
  layer.ComputeParameterGradients(weights.topRows(2));
  EXPECT_EQ(layer.parameters()[0]->gradient, expected);
  EXPECT_EQ(layer.InputGradient(weights.topRows(2)).rows(), 2);
}

}  // namespace
}  // namespace lenet
