// SPDX-License-Identifier: Apache-2.0

// Provides the digits as a libtorch dataset, and functions shared by the programs that train on them.
#ifndef RONDA_EXAMPLES_TORCH_LENET_DIGITS_H_
#define RONDA_EXAMPLES_TORCH_LENET_DIGITS_H_

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "client/ronda/training.hpp"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/program.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/torch_lenet/flags.h"

namespace torch_lenet {

using Example = torch::data::Example<>;

// A dataset of images, with pixel values from 0 to 1, and their labels.
class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  Digits(const std::string& directory, const std::string& prefix) {
    lenet::MnistImages digits = lenet::LoadMnist(directory, prefix);
    const auto count = static_cast<std::int64_t>(digits.size());
    images_ = torch::from_blob(digits.pixels.data(), {count, 1, 28, 28}, at::kByte).to(at::kFloat) / 255;
    labels_ = torch::from_blob(digits.labels.data(), {count}, at::kByte).to(at::kLong);
  }

  Example get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {images_[i], labels_[i]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels_.size(0)); }

  // All images.
  const at::Tensor& images() const { return images_; }
  const at::Tensor& labels() const { return labels_; }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

// Returns a loader that makes batches from this rank's share of the digits.
inline auto LoaderOf(const Digits& digits, const ronda::torch::DistributedSampler& sampler, std::int64_t batch_size) {
  const auto options = torch::data::DataLoaderOptions(static_cast<std::size_t>(batch_size)).drop_last(true);
  return torch::data::make_data_loader(Digits(digits).map(torch::data::transforms::Stack<>()), sampler, options);
}

inline ronda::torch::DistributedSampler SamplerOf(const Digits& digits, std::uint64_t seed) {
  ronda::training::DistributedSamplerOptions options;
  options.seed = seed;
  options.tail = ronda::training::Tail::drop;
  return ronda::torch::DistributedSampler(*digits.size(), options);
}

// Returns the number of digits that this rank trains on in each step.
inline std::int64_t ShareOf(std::int64_t batch_size, std::size_t digits) {
  if (batch_size % ronda::size() != 0 || batch_size > static_cast<std::int64_t>(digits)) {
    throw std::invalid_argument("a batch of " + std::to_string(batch_size) + " digits of " + std::to_string(digits) +
                                " cannot be shared equally by " + lenet::RanksText());
  }
  return batch_size / ronda::size();
}

// Reports the steps of an epoch to a reporter, on all ranks.
class EpochClock {
 public:
  // `at` contains the epoch, counted from 1, and the numbers of epochs and steps; `done` is the number of steps already
  // made in this epoch.
  EpochClock(const lenet::Reporter::Progress& at, std::int64_t batch_size, std::size_t done = 0)
      : progress_(at), batch_size_(batch_size), before_(done) {
    progress_.step = done;
  }

  void StepDone(double loss, lenet::Reporter* reporter) {
    ++progress_.step;
    Update(loss);
    reporter->StepDone(progress_);
  }
  void EpochDone(double loss, lenet::Reporter* reporter) {
    Update(loss);
    reporter->EpochDone(progress_);
  }

 private:
  void Update(double loss) {
    const std::chrono::duration<double> duration = std::chrono::steady_clock::now() - start_;
    const auto steps = static_cast<std::int64_t>(progress_.step - before_);
    progress_.loss = loss;
    progress_.images_per_second = static_cast<double>(steps * batch_size_) / duration.count();
  }

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  lenet::Reporter::Progress progress_;
  const std::int64_t batch_size_;
  const std::size_t before_;
};

// Returns the fraction of the test digits that `net` recognises. Each digit is tested by one of the ranks.
template <class Net>
double Accuracy(const Digits& digits, Net& net) {
  const torch::NoGradGuard no_grad;
  const std::int64_t count = digits.labels().size(0);
  const std::int64_t first = count * ronda::rank() / ronda::size(), end = count * (ronda::rank() + 1) / ronda::size();
  std::int64_t correct = 0;
  for (std::int64_t i = first; i < end; i += 100) {
    const std::int64_t next = std::min(i + 100, end);
    const at::Tensor found = net->forward(digits.images().slice(0, i, next)).argmax(1);
    correct += found.eq(digits.labels().slice(0, i, next)).sum().template item<std::int64_t>();
  }
  ronda::allreduce(ronda::tensor("correct", &correct), {ronda::Op::Sum});
  return static_cast<double>(correct) / static_cast<double>(count);
}

// Trains and tests. Returns the accuracy, or nullopt if training had to stop before the test.
using Training = std::function<std::optional<double>(const Digits& training, const Digits& test, lenet::Reporter&)>;

// Runs the job with `train`. Rank 0's output begins with `title`.
inline void RunJob(const std::string& title, const Flags& flags, const Training& train) {
  const auto start = std::chrono::steady_clock::now();
  const ronda::Job job;
  // The ranks on a host share its cores, so each rank gets an equal share of the threads.
  torch::set_num_threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ronda::local_size()));
  torch::manual_seed(flags.seed + static_cast<std::uint64_t>(ronda::rank()));
  const std::string directory = flags.data.empty() ? lenet::DefaultDataDirectory() : flags.data;
  const Digits training_digits(directory, "train"), test_digits(directory, "t10k");
  lenet::Reporter reporter(&std::cout, lenet::ReporterMode());
  reporter.Say(title + " on " + lenet::RanksText() + ", " + std::to_string(*training_digits.size()) +
               " digits in batches of " + std::to_string(flags.batch_size));
  const std::optional<double> accuracy = train(training_digits, test_digits, reporter);
  if (accuracy) reporter.Say(lenet::AccuracyText(*accuracy, std::chrono::steady_clock::now() - start));
}

}  // namespace torch_lenet

#endif  // RONDA_EXAMPLES_TORCH_LENET_DIGITS_H_
