// SPDX-License-Identifier: Apache-2.0

// Trains LeNet-5 on MNIST digits: see README.md in this folder. trainer.cc shows how to use Ronda.

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "examples/lenet_mnist/flags.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/program.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/lenet_mnist/trainer.h"

namespace lenet {
namespace {

std::vector<std::vector<float>> ValuesOf(LeNet& model) {
  std::vector<std::vector<float>> values;
  for (const Parameter* parameter : model.parameters()) {
    values.emplace_back(parameter->value.data(), parameter->value.data() + parameter->value.size());
  }
  return values;
}

void TrainAndTest(const Flags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const ronda::Job job;
  const std::string directory = flags.data.empty() ? DefaultDataDirectory() : flags.data;
  const MnistImages training_images = LoadMnist(directory, "train");
  const MnistImages test_images = LoadMnist(directory, "t10k");
  Reporter reporter(&std::cout, ReporterMode());
  Trainer trainer(flags.training, &training_images, &reporter);
  reporter.Say("LeNet-5 on " + RanksText() + ", " + std::to_string(training_images.size()) + " digits in batches of " +
               std::to_string(trainer.batch_size()));
  if (trainer.Train() == Trainer::End::kAskedToStop) {
    reporter.Say("asked to stop: ended after step " + std::to_string(trainer.steps_done()) + ", on all ranks");
  }
  const double accuracy = trainer.Accuracy(test_images);
  if (ronda::rank() == 0 && !flags.dump_parameters.empty()) {
    WriteParameters(flags.dump_parameters, ValuesOf(trainer.model()));
  }
  reporter.Say(AccuracyText(accuracy, std::chrono::steady_clock::now() - start));
}

int Main(const std::vector<std::string>& arguments) {
  return ExitCodeOf("lenet_mnist", [&] {
    const Flags flags = ParseFlags(arguments);
    if (flags.action == Flags::Action::kShowHelp) {
      std::cout << Usage("lenet_mnist");
    } else {
      TrainAndTest(flags);
    }
  });
}

}  // namespace
}  // namespace lenet

int main(int argc, char** argv) { return lenet::Main({argv + 1, argv + argc}); }
