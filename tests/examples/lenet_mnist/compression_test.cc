// SPDX-License-Identifier: Apache-2.0

// Tests that compressed gradients give as good an accuracy as uncompressed ones, with far fewer bytes.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/training.hpp"
#include "examples/lenet_mnist/batch.h"
#include "examples/lenet_mnist/lenet.h"
#include "examples/lenet_mnist/loss.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/sgd.h"
#include "examples/lenet_mnist/trainer.h"

namespace lenet {
namespace {

constexpr std::size_t kEpochs = 6;
constexpr double kMomentum = 0.9;

struct Outcome {
  double accuracy = 0;
  double bytes_per_step = 0;  // sent by one rank
};

// A function that averages the gradients of a step, and returns how many bytes this rank has passed to collectives.
using Reduce = std::function<std::size_t()>;
using MakeReduce = std::function<Reduce(const std::vector<ronda::Tensor>&)>;

double AccuracyOf(LeNet& model, const MnistImages& images) {
  std::vector<std::int64_t> all(images.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Batch batch = GatherBatch(images, all);
  return static_cast<double>(CountCorrect(model.Forward(batch.images), batch.labels)) /
         static_cast<double>(images.size());
}

// Trains one rank.
Outcome TrainRank(double momentum, const MakeReduce& make) {
  const std::string directory = DefaultDataDirectory();
  const MnistImages images = LoadMnist(directory, "train");
  const auto ranks = static_cast<std::size_t>(ronda::size());
  const std::size_t steps = images.size() / (kImagesPerRank * ranks);
  LeNet model(1);
  std::vector<ronda::Tensor> gradients;
  for (Parameter* parameter : model.parameters()) {
    Matrix& gradient = parameter->gradient;
    gradients.push_back(ronda::tensor(parameter->name, gradient.data(), {gradient.rows(), gradient.cols()}));
  }
  const Reduce reduce = make(gradients);
  Sgd sgd(model.parameters(), momentum);
  const auto rate = RateFor(0.015, kImagesPerRank * ranks, steps, kEpochs);
  auto sampler = SamplerFor(images.size(), 1);
  Matrix logits_gradient;
  std::size_t bytes = 0;
  for (std::size_t step = 0; step < kEpochs * steps; ++step) {
    if (step % steps == 0) sampler.set_epoch(static_cast<std::int64_t>(step / steps));
    const Batch batch = GatherBatch(images, sampler.next(kImagesPerRank));
    SoftmaxCrossEntropy(model.Forward(batch.images), batch.labels, &logits_gradient);
    model.Backward(logits_gradient, [](const Parameter&) {});
    bytes += reduce();
    sgd.set_learning_rate(rate.at(static_cast<std::int64_t>(step)));
    sgd.step();
  }
  return {.accuracy = AccuracyOf(model, LoadMnist(directory, "t10k")),
          .bytes_per_step = static_cast<double>(bytes) / static_cast<double>(kEpochs * steps)};
}

Outcome Train(int ranks, double momentum, const MakeReduce& make) {
  Outcome of_rank_zero;
  ronda::run_threads(ranks, [&] {
    const Outcome own = TrainRank(momentum, make);
    if (ronda::rank() == 0) of_rank_zero = own;
  });
  return of_rank_zero;
}

Reduce Dense(const std::vector<ronda::Tensor>& gradients) {
  return [gradients] {
    const std::uint64_t before = ronda::statistics().wire_bytes;
    ronda::grouped_allreduce("gradients", gradients);
    return ronda::statistics().wire_bytes - before;
  };
}

Reduce LowRank(const std::vector<ronda::Tensor>& gradients) {
  const auto power = std::make_shared<ronda::training::PowerSgd>(gradients);
  return [power] { return power->reduce(), power->bytes_sent(); };
}

// Returns a reduction by TopK. It does not use factor masking, which makes such a short training run less accurate.
Reduce Largest(const std::vector<ronda::Tensor>& gradients) {
  const auto top_k = std::make_shared<ronda::training::TopK>(
      gradients, ronda::training::TopKOptions{
                     .density = 0.02, .warm_up_steps = 200, .momentum = kMomentum, .factor_masking = false});
  return [top_k] { return top_k->reduce(), top_k->bytes_sent(); };
}

class CompressionTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CompressionTest, ::testing::Values(2, 4));

TEST_P(CompressionTest, IsWithinHalfAPercentOfDenseTraining) {
  const Outcome dense = Train(GetParam(), kMomentum, Dense);
  const Outcome low_rank = Train(GetParam(), kMomentum, LowRank);
  const Outcome largest = Train(GetParam(), 0, Largest);
  for (const auto& [name, outcome] : {std::pair("dense", dense), {"PowerSgd", low_rank}, {"TopK", largest}}) {
    std::cout << name << ": accuracy " << outcome.accuracy << ", " << outcome.bytes_per_step
              << " bytes a step from each rank\n";
  }
  EXPECT_GT(dense.accuracy, 0.97);
  EXPECT_GE(low_rank.accuracy, dense.accuracy - 0.005);
  EXPECT_GE(largest.accuracy, dense.accuracy - 0.005);
  EXPECT_EQ(dense.bytes_per_step, 4 * 61706);
  EXPECT_LT(low_rank.bytes_per_step, dense.bytes_per_step / 14);
  EXPECT_LT(largest.bytes_per_step, dense.bytes_per_step / 10);
}

}  // namespace
}  // namespace lenet
