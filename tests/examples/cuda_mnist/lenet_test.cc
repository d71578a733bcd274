// SPDX-License-Identifier: Apache-2.0

// Checks that the network computes the same numbers on a device as on the CPU, except for rounding. Runs on the fake
// GPU, and also on a real GPU if there is one.
#include "examples/cuda_mnist/lenet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/launch.h"
#include "examples/lenet_mnist/batch.h"
#include "examples/lenet_mnist/lenet.h"
#include "examples/lenet_mnist/loss.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/random.h"

namespace cuda_mnist {
namespace {

using ::testing::ElementsAre;

constexpr int kMaxSamples = 8;

lenet::MnistImages RandomImages(std::size_t count) {
  lenet::RandomNumbers random(/*seed=*/3, /*stream=*/1);
  lenet::MnistImages images;
  images.pixels.resize(count * lenet::kImagePixels);
  for (std::uint8_t& pixel : images.pixels) pixel = static_cast<std::uint8_t>(random.Below(256));
  images.labels.resize(count);
  for (std::uint8_t& label : images.labels) label = static_cast<std::uint8_t>(random.Below(10));
  return images;
}

// Expects `values` to equal `expected`, within a tolerance relative to the largest value.
void ExpectNear(const std::vector<float>& values, const lenet::Matrix& expected, const std::string& what) {
  ASSERT_EQ(values.size(), static_cast<std::size_t>(expected.size())) << what;
  const float tolerance = 2e-5f * std::max(expected.cwiseAbs().maxCoeff(), 1e-3f);
  float worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::abs(values[i] - expected.data()[static_cast<Eigen::Index>(i)]));
  }
  EXPECT_LE(worst, tolerance) << what;
}

class CudaLenetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = Device::WhyNone(); !reason.empty()) GTEST_SKIP() << reason;
    device_ = std::make_unique<Device>(0);
    model_ = std::make_unique<LeNet>(*device_, cpu_, kMaxSamples);
  }

  // Gathers the images of a batch on the device.
  const float* Gather(const std::vector<int>& indices) {
    const DeviceArray<std::uint8_t> pixels(*device_, images_.pixels);
    const DeviceArray<int> order(*device_, indices);
    const int count = static_cast<int>(indices.size() * lenet::kImagePixels);
    gathered_ = std::make_unique<DeviceArray<float>>(*device_, static_cast<std::size_t>(count));
    Launch(GatherImages{pixels.data(), order.data(), gathered_->data(), static_cast<int>(lenet::kImagePixels), count},
           device_->stream());
    device_->Synchronize();
    return gathered_->data();
  }

  std::vector<float> Download(const float* data, std::size_t count) {
    std::vector<float> values(count);
    device_->Download(values.data(), data, count * sizeof(float));
    return values;
  }

  const lenet::MnistImages images_ = RandomImages(20);
  lenet::LeNet cpu_{/*seed=*/5};
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceArray<float>> gathered_;
  std::unique_ptr<LeNet> model_;
};

TEST_F(CudaLenetTest, ImagesAreThoseOfTheOrder) {
  const std::vector<std::int64_t> order = {7, 0, 19};
  const lenet::Batch batch = lenet::GatherBatch(images_, order);
  const std::vector<float> gathered = Download(Gather({7, 0, 19}), 3 * lenet::kImagePixels);
  EXPECT_TRUE(std::equal(gathered.begin(), gathered.end(), batch.images.data()));
}

TEST_F(CudaLenetTest, LogitsAndGradientsAreTheCpusWhateverTheNumberOfSamples) {
  for (const std::vector<std::int64_t>& order :
       {std::vector<std::int64_t>{3}, std::vector<std::int64_t>{1, 5, 9, 13, 2, 4, 6, 8}, {11, 12, 17}}) {
    const lenet::Batch batch = lenet::GatherBatch(images_, order);
    lenet::Matrix cpu_gradient;
    const lenet::Matrix cpu_logits = cpu_.Forward(batch.images);
    lenet::SoftmaxCrossEntropy(cpu_logits, batch.labels, &cpu_gradient);
    cpu_.Backward(cpu_gradient, [](const lenet::Parameter&) {});

    const int samples = static_cast<int>(order.size());
    const float* const logits = model_->Forward(Gather({order.begin(), order.end()}), samples);
    ExpectNear(Download(logits, order.size() * 10), cpu_logits, "logits");
    const DeviceArray<float> gradient(
        *device_, std::vector<float>(cpu_gradient.data(), cpu_gradient.data() + cpu_gradient.size()));
    model_->Backward(gradient.data(), [](std::size_t) {});
    for (std::size_t i = 0; i < model_->parameters().size(); ++i) {
      const lenet::Parameter& expected = *cpu_.parameters()[i];
      ExpectNear(model_->parameters()[i]->gradient.Download(), expected.gradient, expected.name);
    }
  }
}

TEST_F(CudaLenetTest, LossesAndTheirGradientAreTheCpus) {
  const std::vector<int> order = {4, 14, 2};
  lenet::Matrix logits(3, 10), expected;
  for (Eigen::Index i = 0; i < logits.size(); ++i) logits.data()[i] = static_cast<float>((i * 7) % 13) - 40;
  std::vector<std::uint8_t> labels;
  for (const int index : order) labels.push_back(images_.labels[static_cast<std::size_t>(index)]);
  const double mean = lenet::SoftmaxCrossEntropy(logits, labels, &expected);

  const DeviceArray<float> on_device(*device_, std::vector<float>(logits.data(), logits.data() + logits.size()));
  const DeviceArray<std::uint8_t> all_labels(*device_, images_.labels);
  const DeviceArray<int> order_on_device(*device_, order);
  const DeviceArray<float> losses(*device_, 3), gradient(*device_, 30);
  Launch(SoftmaxCrossEntropy{on_device.data(), all_labels.data(), order_on_device.data(), losses.data(),
                             gradient.data(), 10, 3},
         device_->stream());
  ExpectNear(gradient.Download(), expected, "gradient");
  const std::vector<float> all = losses.Download();
  EXPECT_NEAR(std::accumulate(all.begin(), all.end(), 0.0) / 3, mean, 1e-5);
}

TEST_F(CudaLenetTest, GradientsAreAnnouncedLastLayerFirst) {
  model_->Forward(Gather({0, 1}), 2);
  const DeviceArray<float> gradient(*device_, 20);
  std::vector<std::string> announced;
  model_->Backward(gradient.data(), [&](std::size_t i) { announced.push_back(model_->parameters()[i]->name); });
  EXPECT_THAT(announced, ElementsAre("fc3.weight", "fc3.bias", "fc2.weight", "fc2.bias", "fc1.weight", "fc1.bias",
                                     "conv2.weight", "conv2.bias", "conv1.weight", "conv1.bias"));
}

TEST_F(CudaLenetTest, AStepOfGradientDescentHasMomentum) {
  const DeviceArray<float> values(*device_, std::vector<float>{1, 2}), gradients(*device_, std::vector<float>{4, -8});
  const DeviceArray<float> velocities(*device_, std::vector<float>{2, 0});
  Launch(SgdUpdate{values.data(), velocities.data(), gradients.data(), 0.5f, 0.25f, 2}, device_->stream());
  EXPECT_THAT(velocities.Download(), ElementsAre(5, -8));
  EXPECT_THAT(values.Download(), ElementsAre(-0.25, 4));
}

}  // namespace
}  // namespace cuda_mnist
