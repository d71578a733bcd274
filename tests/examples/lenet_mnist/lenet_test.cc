// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/lenet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/lenet_mnist/batch.h"
#include "examples/lenet_mnist/loss.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/random.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;

Batch FirstDigits(std::size_t count) {
  std::vector<std::int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return GatherBatch(LoadMnist(DefaultDataDirectory(), "t10k"), indices);
}

void Ignore(const Parameter&) {}

TEST(GatherBatch, ScalesPixelsToTheUnitInterval) {
  MnistImages data;
  data.pixels.assign(3 * kImagePixels, 0);
  data.pixels[2 * kImagePixels + 1] = 255;
  data.pixels[1 * kImagePixels + 783] = 51;
  data.labels = {7, 8, 9};
  const Batch batch = GatherBatch(data, {2, 1});
  EXPECT_THAT(batch.labels, ElementsAre(9, 8));
  EXPECT_EQ(batch.images(0, 1), 1.0f);
  EXPECT_EQ(batch.images(1, 783), 0.2f);
  EXPECT_EQ(batch.images.sum(), 1.2f);
}

TEST(ShareOfBatch, IsEqualOnEveryRankOrRefused) {
  EXPECT_EQ(ShareOfBatch(96, 100, 3), 32u);
  const auto error = [](std::size_t batch_size, std::size_t images, std::size_t ranks) -> std::string {
    try {
      ShareOfBatch(batch_size, images, ranks);
    } catch (const std::invalid_argument& refusal) {
      return refusal.what();
    }
    return "";
  };
  EXPECT_EQ(error(64, 100, 3), "a batch of 64 images cannot be shared equally by 3 ranks: choose a multiple of 3");
  EXPECT_EQ(error(101, 100, 1), "a batch of 101 images cannot be drawn from 100");
  EXPECT_EQ(error(0, 100, 1), "a batch of 0 images cannot be drawn from 100");
}

TEST(LeNet, HasTheParametersOfThePaper) {
  LeNet model(/*seed=*/1);
  std::vector<std::string> names;
  std::vector<Eigen::Index> sizes;
  for (const Parameter* parameter : model.parameters()) {
    names.push_back(parameter->name);
    sizes.push_back(parameter->value.size());
  }
  EXPECT_THAT(names, ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight", "fc1.bias",
                                 "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"));
  EXPECT_THAT(sizes, ElementsAre(150, 6, 2400, 16, 48000, 120, 10080, 84, 840, 10));
}

TEST(LeNet, SeedDeterminesTheWeights) {
  LeNet model(/*seed=*/1);
  LeNet same(/*seed=*/1);
  LeNet other(/*seed=*/2);
  EXPECT_EQ(model.parameters()[4]->value, same.parameters()[4]->value);
  EXPECT_NE(model.parameters()[4]->value, other.parameters()[4]->value);
}

TEST(LeNet, AnnouncesGradientsInBackwardOrderOnceTheyAreComplete) {
  const Batch batch = FirstDigits(4);
  LeNet model(/*seed=*/1);
  for (Parameter* parameter : model.parameters()) parameter->gradient.setConstant(NAN);
  Matrix gradient;
  SoftmaxCrossEntropy(model.Forward(batch.images), batch.labels, &gradient);
  std::vector<std::string> announced;
  std::vector<Matrix> when_announced;
  model.Backward(gradient, [&](const Parameter& parameter) {
    announced.push_back(parameter.name);
    when_announced.push_back(parameter.gradient);
  });
  EXPECT_THAT(announced, ElementsAre("fc3.weight", "fc3.bias", "fc2.weight", "fc2.bias", "fc1.weight", "fc1.bias",
                                     "conv2.weight", "conv2.bias", "conv1.weight", "conv1.bias"));
  for (Parameter* parameter : model.parameters()) {
    EXPECT_TRUE(parameter->gradient.allFinite());
    const auto position = std::find(announced.begin(), announced.end(), parameter->name) - announced.begin();
    EXPECT_EQ(when_announced[static_cast<std::size_t>(position)], parameter->gradient) << parameter->name;
  }
}

// Changes each parameter in only one direction, because it has too many numbers to change one by one. A step may cross
// kinks of ReLU and pooling, so the step is small and the tolerance large.
TEST(LeNet, GradientsAgreeWithDifferences) {
  const Batch batch = FirstDigits(8);
  LeNet model(/*seed=*/3);
  // Moves the biases away from 0, because with 0 the empty background would put the inputs of the first ReLU exactly at
  // its kink.
  for (Parameter* parameter : model.parameters()) parameter->value.array() += 0.01f;
  Matrix gradient;
  SoftmaxCrossEntropy(model.Forward(batch.images), batch.labels, &gradient);
  model.Backward(gradient, Ignore);
  RandomNumbers random(/*seed=*/4, /*stream=*/0);
  constexpr float kStep = 1e-3f;
  for (Parameter* parameter : model.parameters()) {
    Matrix direction = parameter->gradient / parameter->gradient.norm();
    for (Eigen::Index i = 0; i < direction.size(); ++i) {
      direction.data()[i] += random.Uniform(1) / std::sqrt(static_cast<float>(direction.size()));
    }
    const Matrix value = parameter->value;
    Matrix ignored;
    parameter->value = value + kStep * direction;
    const double above = SoftmaxCrossEntropy(model.Forward(batch.images), batch.labels, &ignored);
    parameter->value = value - kStep * direction;
    const double below = SoftmaxCrossEntropy(model.Forward(batch.images), batch.labels, &ignored);
    parameter->value = value;
    const double expected = parameter->gradient.cwiseProduct(direction).sum();
    EXPECT_NEAR((above - below) / (2 * kStep) / expected, 1, 0.02) << parameter->name;
  }
}

TEST(LeNet, LearnsAFewDigitsByHeart) {
  const Batch batch = FirstDigits(16);
  LeNet model(/*seed=*/5);
  Matrix gradient;
  const double loss_before = SoftmaxCrossEntropy(model.Forward(batch.images), batch.labels, &gradient);
  EXPECT_NEAR(loss_before, std::log(10.0), 1.0);  // the model has learned nothing yet
  for (int step = 0; step < 100; ++step) {
    SoftmaxCrossEntropy(model.Forward(batch.images), batch.labels, &gradient);
    model.Backward(gradient, Ignore);
    for (Parameter* parameter : model.parameters()) parameter->value -= 0.1f * parameter->gradient;
  }
  const Matrix& logits = model.Forward(batch.images);
  EXPECT_EQ(CountCorrect(logits, batch.labels), 16u);
  EXPECT_LT(SoftmaxCrossEntropy(logits, batch.labels, &gradient), 0.05);
}

}  // namespace
}  // namespace lenet
