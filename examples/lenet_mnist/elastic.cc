// SPDX-License-Identifier: Apache-2.0

// Trains LeNet-5 on MNIST digits on a changing number of ranks: ranks may die, or be asked to leave, and others may
// join.
//
//   rondarun -np 4 --min-np 2 lenet_elastic
//
// This file has everything that an elastic trainer needs beyond the ordinary trainer.cc. See docs/elastic.md.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"
#include "examples/lenet_mnist/batch.h"
#include "examples/lenet_mnist/flags.h"
#include "examples/lenet_mnist/lenet.h"
#include "examples/lenet_mnist/loss.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/program.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/lenet_mnist/sgd.h"
#include "examples/lenet_mnist/trainer.h"

namespace lenet {
namespace {

constexpr std::size_t kGlobalBatch = 64;  // the default; it does not depend on the number of ranks

ronda::Tensor View(const std::string& name, Matrix& matrix) {
  return ronda::tensor(name, matrix.data(), {matrix.rows(), matrix.cols()});
}

class ElasticTrainer {
 public:
  ElasticTrainer(const TrainingOptions& options, const MnistImages* training_images, const MnistImages* test_images)
      : options_(options),
        training_images_(*training_images),
        test_images_(*test_images),
        batch_size_(options.batch_size == 0 ? kGlobalBatch : options.batch_size),
        model_(options.seed),
        sgd_(model_.parameters(), options.momentum),
        sampler_(static_cast<std::int64_t>(training_images->size()), static_cast<std::int64_t>(batch_size_),
                 {.seed = options.seed}),
        state_(Values(), sgd_, sampler_),
        learning_rate_(RateFor(options.learning_rate, batch_size_,
                               (training_images->size() + batch_size_ - 1) / batch_size_, options.epochs)) {}

  // Trains for as long as this process is a member. accuracy() is valid only if the process stayed to the end.
  ronda::elastic::End Train() {
    return ronda::elastic::run(state_, [this](const ronda::elastic::Membership& now) { TrainInEpoch(now); });
  }

  double accuracy() const { return accuracy_; }
  std::int64_t steps() const { return state_.step(); }

 private:
  std::vector<ronda::Tensor> Values() {
    std::vector<ronda::Tensor> values;
    for (Parameter* parameter : model_.parameters()) values.push_back(View(parameter->name, parameter->value));
    return values;
  }

  std::vector<ronda::Tensor> Gradients() {
    std::vector<ronda::Tensor> gradients;
    for (Parameter* parameter : model_.parameters()) gradients.push_back(View(parameter->name, parameter->gradient));
    return gradients;
  }

  // Trains with the membership of one epoch. Recreates everything that depends on the membership.
  void TrainInEpoch(const ronda::elastic::Membership& now) {
    Reporter reporter(&std::cout, ReporterMode());
    reporter.Say(RanksText() + " go on after step " + std::to_string(now.step));
    // Each rank's loss is a part of the batch's loss, so the gradients are summed.
    ronda::DistributedOptimizer<Sgd> optimizer(sgd_, Gradients(),
                                               {.op = ronda::Op::Sum, .compression = options_.compression});
    while (sampler_.epoch() < static_cast<std::int64_t>(options_.epochs)) {
      const std::int64_t epoch = sampler_.epoch();
      TrainStep(sampler_.next(), optimizer);
      if (sampler_.epoch() > epoch) reporter.Say("epoch " + std::to_string(epoch + 1) + " is done");
      state_.step_done();
    }
    accuracy_ = Accuracy();
  }

  void TrainStep(const ronda::elastic::Batch& share, ronda::DistributedOptimizer<Sgd>& optimizer) {
    // A rank without samples in the last batch contributes zeros.
    if (!share.samples.empty()) {
      const Batch batch = GatherBatch(training_images_, share.samples);
      const Matrix& logits = model_.Forward(batch.images);
      SoftmaxCrossEntropy(logits, batch.labels, &logits_gradient_);
      logits_gradient_ *= static_cast<float>(share.samples.size()) / static_cast<float>(share.global_size);
      model_.Backward(logits_gradient_, [&](const Parameter& parameter) { optimizer.gradient_ready(parameter.name); });
    }
    sgd_.set_learning_rate(learning_rate_.at(state_.step()));
    optimizer.step();
  }

  double Accuracy() {
    std::vector<std::int64_t> indices;
    const auto ranks = static_cast<std::size_t>(ronda::size());
    for (auto i = static_cast<std::size_t>(ronda::rank()); i < test_images_.size(); i += ranks) {
      indices.push_back(static_cast<std::int64_t>(i));
    }
    const Batch batch = GatherBatch(test_images_, indices);
    auto correct = static_cast<std::int64_t>(CountCorrect(model_.Forward(batch.images), batch.labels));
    ronda::allreduce(ronda::tensor("correct", &correct), {.op = ronda::Op::Sum});
    return static_cast<double>(correct) / static_cast<double>(test_images_.size());
  }

  const TrainingOptions options_;
  const MnistImages& training_images_;
  const MnistImages& test_images_;
  const std::size_t batch_size_;
  LeNet model_;
  Sgd sgd_;
  ronda::elastic::Sampler sampler_;
  ronda::elastic::State state_;
  const ronda::training::LearningRate learning_rate_;
  Matrix logits_gradient_;
  double accuracy_ = 0;
};

void TrainAndTest(const Flags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const std::string directory = flags.data.empty() ? DefaultDataDirectory() : flags.data;
  const MnistImages training_images = LoadMnist(directory, "train");
  const MnistImages test_images = LoadMnist(directory, "t10k");
  ElasticTrainer trainer(flags.training, &training_images, &test_images);
  if (trainer.Train() == ronda::elastic::End::left) {
    std::cout << "asked to end: left after step " + std::to_string(trainer.steps()) + "\n";
    return;
  }
  Reporter(&std::cout, ReporterMode()).Say(AccuracyText(trainer.accuracy(), std::chrono::steady_clock::now() - start));
  ronda::shutdown();
}

int Main(const std::vector<std::string>& arguments) {
  return ExitCodeOf("lenet_elastic", [&] {
    const Flags flags = ParseFlags(arguments);
    if (flags.action == Flags::Action::kShowHelp) {
      std::cout << Usage("lenet_elastic");
    } else {
      TrainAndTest(flags);
    }
  });
}

}  // namespace
}  // namespace lenet

int main(int argc, char** argv) { return lenet::Main({argv + 1, argv + argc}); }
