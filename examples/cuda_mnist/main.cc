// SPDX-License-Identifier: Apache-2.0

// Trains LeNet-5 on MNIST digits, on GPUs: see README.md in this folder. trainer.cc shows how to use Ronda with GPUs.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "examples/cuda_mnist/bench.h"
#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/flags.h"
#include "examples/cuda_mnist/trainer.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/program.h"
#include "examples/lenet_mnist/reporter.h"

namespace cuda_mnist {
namespace {

std::vector<std::vector<float>> ValuesOf(LeNet& model) {
  std::vector<std::vector<float>> values;
  for (const Parameter* parameter : model.parameters()) values.push_back(parameter->value.Download());
  return values;
}

// Returns the beginning of a line, such as "LeNet-5 on 2 ranks, NVIDIA H200: ".
std::string Beginning(const Device& device) { return "LeNet-5 on " + lenet::RanksText() + ", " + device.name() + ": "; }

void TrainAndTest(const lenet::Flags& flags, Device& device) {
  const auto start = std::chrono::steady_clock::now();
  const std::string directory = flags.data.empty() ? lenet::DefaultDataDirectory() : flags.data;
  const lenet::MnistImages training_images = lenet::LoadMnist(directory, "train");
  const lenet::MnistImages test_images = lenet::LoadMnist(directory, "t10k");
  lenet::Reporter reporter(&std::cout, lenet::ReporterMode());
  Trainer trainer(device, flags.training, &training_images, &reporter);
  reporter.Say(Beginning(device) + std::to_string(training_images.size()) + " digits in batches of " +
               std::to_string(trainer.batch_size()));
  if (trainer.Train() == Trainer::End::kAskedToStop) {
    reporter.Say("asked to stop: ended after step " + std::to_string(trainer.steps_done()) + ", on all ranks");
  }
  const double accuracy = trainer.Accuracy(test_images);
  if (ronda::rank() == 0 && !flags.dump_parameters.empty()) {
    lenet::WriteParameters(flags.dump_parameters, ValuesOf(trainer.model()));
  }
  reporter.Say(lenet::AccuracyText(accuracy, std::chrono::steady_clock::now() - start));
}

// Returns a line with one rank's measurement and its limit. tools/gpu/run.sh reads this line.
std::string OptimizerText(const BenchResult& result) {
  char text[160];
  std::snprintf(text, sizeof(text), "DistributedOptimizer in a step of LeNet-5, 1 rank: %.1f %% (aim: under 3 %%)",
                100 * result.overhead());
  return text;
}

void Benchmark(lenet::TrainingOptions training, Device& device) {
  constexpr std::size_t kBatchPerRank = 256;
  if (training.batch_size == 0) training.batch_size = kBatchPerRank * static_cast<std::size_t>(ronda::size());
  training.learning_rate = 0;  // the made-up digits teach nothing
  BenchOptions options;
  if (training.max_steps != std::numeric_limits<std::size_t>::max())
    options.steps = std::max<std::size_t>(1, training.max_steps);
  const lenet::MnistImages digits = MadeUpDigits(4 * training.batch_size);
  lenet::Reporter reporter(&std::cout, lenet::ReporterMode());
  Trainer trainer(device, training, &digits, &reporter);
  reporter.Say(Beginning(device) + "made-up digits in batches of " + std::to_string(trainer.batch_size()));
  const BenchResult result = RunBench(options, device, trainer);
  reporter.Say(result.text());
  if (ronda::size() == 1) reporter.Say(OptimizerText(result));
}

void Run(const Flags& flags) {
  if (const std::string reason = Device::WhyNone(); !reason.empty()) {
    throw std::runtime_error("this needs a GPU: " + reason + "; lenet_mnist trains the same network on CPUs");
  }
  const ronda::Job job;
  Device device(ronda::local_rank());
  if (flags.work == Flags::Work::kBenchmark) {
    Benchmark(flags.shared.training, device);
  } else {
    TrainAndTest(flags.shared, device);
  }
}

int Main(const std::vector<std::string>& arguments) {
  return lenet::ExitCodeOf("cuda_mnist", [&] {
    const Flags flags = ParseFlags(arguments);
    if (flags.shared.action == lenet::Flags::Action::kShowHelp) {
      std::cout << Usage();
    } else {
      Run(flags);
    }
  });
}

}  // namespace
}  // namespace cuda_mnist

int main(int argc, char** argv) { return cuda_mnist::Main({argv + 1, argv + argc}); }
