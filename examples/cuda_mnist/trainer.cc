// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/trainer.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "examples/cuda_mnist/launch.h"
#include "examples/lenet_mnist/loss.h"

namespace cuda_mnist {
namespace {

using Clock = std::chrono::steady_clock;
using lenet::kDigits;
using lenet::kImagePixels;

std::size_t Rank() { return static_cast<std::size_t>(ronda::rank()); }
std::size_t Size() { return static_cast<std::size_t>(ronda::size()); }

std::vector<ronda::Tensor> ValuesOf(const Device& device, LeNet& model) {
  std::vector<ronda::Tensor> values;
  for (const Parameter* parameter : model.parameters()) {
    values.push_back(View(device, parameter->name, parameter->value.data(), *parameter));
  }
  return values;
}

std::vector<ronda::Tensor> GradientsOf(const Device& device, LeNet& model) {
  std::vector<ronda::Tensor> gradients;
  for (const Parameter* parameter : model.parameters()) {
    gradients.push_back(View(device, parameter->name + ".gradient", parameter->gradient.data(), *parameter));
  }
  return gradients;
}

constexpr std::size_t kMostSamples = 65536;  // of a rank and step: arrays have fewer than 2^31 elements

// Each rank draws different weights, as if only rank 0 had read a checkpoint.
LeNet RandomModel(Device& device, std::uint64_t seed, std::size_t max_samples) {
  if (max_samples > kMostSamples) {
    throw std::invalid_argument(std::to_string(max_samples) + " images a rank and step are more than " +
                                std::to_string(kMostSamples) + ": choose a smaller batch, or more ranks");
  }
  lenet::LeNet initial(seed + Rank());
  return LeNet(device, initial, static_cast<int>(max_samples));
}

}  // namespace

// broadcast_parameters() copies rank 0's weights to all ranks. After that, the weights stay equal on all ranks, because
// all ranks apply the same averages.
Trainer::Trainer(Device& device, const lenet::TrainingOptions& options, const lenet::MnistImages* images,
                 lenet::Reporter* reporter)
    : device_(device),
      options_(options),
      batch_size_(options.batch_size == 0 ? lenet::kImagesPerRank * Size() : options.batch_size),
      share_(lenet::ShareOfBatch(batch_size_, images->size(), Size())),
      reporter_(reporter),
      steps_per_epoch_(images->size() / batch_size_),
      sampler_(lenet::SamplerFor(images->size(), options.seed)),
      learning_rate_(lenet::RateFor(options.learning_rate, batch_size_, steps_per_epoch_, options.epochs)),
      model_(RandomModel(device, options.seed, share_)),
      sgd_(device, model_.parameters(), options.momentum),
      optimizer_(sgd_, GradientsOf(device, model_), {.compression = options.compression}),
      pixels_(device, images->pixels),
      labels_(device, images->labels),
      order_(device, steps_per_epoch_ * share_),
      images_(device, share_ * kImagePixels),
      logits_gradient_(device, share_ * kDigits),
      losses_(device, share_),
      mean_(device, std::vector<float>(share_, 1.0f / static_cast<float>(share_))),
      loss_sum_(device, 1) {
  ronda::broadcast_parameters(ValuesOf(device, model_), /*root=*/0);
  ronda::broadcast_optimizer_state(sgd_, /*root=*/0);
}

Trainer::End Trainer::Train() {
  for (std::size_t epoch = 0; epoch < options_.epochs && steps_done_ < options_.max_steps; ++epoch) {
    if (TrainEpoch(epoch) == End::kAskedToStop) return End::kAskedToStop;
  }
  return End::kComplete;
}

Trainer::End Trainer::TrainEpoch(std::size_t epoch) {
  const Clock::time_point start = Clock::now();
  StartEpoch(epoch);
  const std::size_t steps = std::min(steps_per_epoch(), options_.max_steps - steps_done_);
  std::size_t step = 0;
  // should_stop() returns the same answer on every rank, so all ranks end after the same step.
  for (; step < steps && !ronda::should_stop(); ++step) TrainStep(step);
  if (step == 0) return End::kAskedToStop;
  double loss_sum = TakeLossSum();
  ronda::allreduce(ronda::tensor("loss", &loss_sum));  // the average over the ranks, in place
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  reporter_->EpochDone({.epoch = epoch + 1,
                        .epochs = options_.epochs,
                        .step = step,
                        .steps = steps_per_epoch(),
                        .loss = loss_sum / static_cast<double>(step),
                        .images_per_second = static_cast<double>(step * batch_size_) / seconds});
  return step < steps ? End::kAskedToStop : End::kComplete;
}

void Trainer::StartEpoch(std::size_t epoch) {
  sampler_.set_epoch(static_cast<std::int64_t>(epoch));
  std::vector<int> order;
  order.reserve(order_.size());
  for (const std::int64_t index : sampler_.next(order_.size())) order.push_back(static_cast<int>(index));
  order_.Upload(order.data(), order.size());
}

void Trainer::TrainStep(std::size_t step, Communication communication) {
  const int* const order = order_.data() + step * share_;
  const int samples = static_cast<int>(share_);
  Launch(GatherImages{pixels_.data(), order, images_.data(), static_cast<int>(kImagePixels),
                      samples * static_cast<int>(kImagePixels)},
         device_.stream());
  const float* const logits = model_.Forward(images_.data(), samples);
  Launch(SoftmaxCrossEntropy{logits, labels_.data(), order, losses_.data(), logits_gradient_.data(),
                             static_cast<int>(kDigits), samples},
         device_.stream());
  device_.Multiply({.rows = 1,
                    .columns = 1,
                    .inner = samples,
                    .left = {.data = mean_.data()},
                    .right = {.data = losses_.data()},
                    .result = loss_sum_.data(),
                    .onto = Product::Onto::kResult});
  sgd_.set_learning_rate(learning_rate_.at(static_cast<std::int64_t>(steps_done_)));
  ++steps_done_;
  if (communication == Communication::kNone) {
    model_.Backward(logits_gradient_.data(), [](std::size_t) {});
    return sgd_.step();
  }
  // Gradients are sent to the other ranks while the device still computes the gradients of earlier layers. The host
  // does not wait for the device. In step() the stream, not the host, waits for the reduced gradients.
  model_.Backward(logits_gradient_.data(), [this](std::size_t parameter) { optimizer_.gradient_ready(parameter); });
  optimizer_.step();
}

double Trainer::TakeLossSum() {
  const float sum = loss_sum_.Download()[0], zero = 0;
  loss_sum_.Upload(&zero, 1);
  return sum;
}

double Trainer::Accuracy(const lenet::MnistImages& images) {
  const DeviceArray<std::uint8_t> pixels(device_, images.pixels);
  std::vector<int> mine;
  for (std::size_t i = Rank(); i < images.size(); i += Size()) mine.push_back(static_cast<int>(i));
  const DeviceArray<int> order(device_, mine);
  std::int64_t correct = 0;
  for (std::size_t begin = 0; begin < mine.size(); begin += share_) {
    const std::size_t count = std::min(share_, mine.size() - begin);
    Launch(GatherImages{pixels.data(), order.data() + begin, images_.data(), static_cast<int>(kImagePixels),
                        static_cast<int>(count * kImagePixels)},
           device_.stream());
    lenet::Matrix logits(static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(kDigits));
    device_.Download(logits.data(), model_.Forward(images_.data(), static_cast<int>(count)),
                     count * kDigits * sizeof(float));
    std::vector<std::uint8_t> labels;
    for (std::size_t i = begin; i < begin + count; ++i)
      labels.push_back(images.labels[static_cast<std::size_t>(mine[i])]);
    correct += static_cast<std::int64_t>(lenet::CountCorrect(logits, labels));
  }
  ronda::allreduce(ronda::tensor("correct", &correct), {.op = ronda::Op::Sum});
  return static_cast<double>(correct) / static_cast<double>(images.size());
}

}  // namespace cuda_mnist
