// Trains LeNet-5 on MNIST digits: see README.md beside this file. The part to read for how Ronda is used is trainer.cc.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "examples/lenet_mnist/flags.h"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/lenet_mnist/trainer.h"

namespace lenet {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

// Under rondarun stdout is a pipe; the launcher says whether a terminal is at its other end.
Reporter::Mode ReporterMode() {
  if (ronda::rank() != 0) return Reporter::Mode::kSilent;
  const char* const launcher_says = std::getenv("RONDA_OUTPUT_IS_TERMINAL");
  const bool is_terminal = launcher_says != nullptr ? std::string(launcher_says) == "1" : isatty(STDOUT_FILENO) != 0;
  return is_terminal ? Reporter::Mode::kTerminal : Reporter::Mode::kLines;
}

std::string RanksText() { return std::to_string(ronda::size()) + (ronda::size() == 1 ? " rank" : " ranks"); }

std::string AccuracyText(double accuracy, std::chrono::duration<double> duration) {
  char text[80];
  std::snprintf(text, sizeof(text), "test accuracy %.3f (%s, %.0f s)", accuracy, RanksText().c_str(), duration.count());
  return text;
}

void WriteParameters(const std::string& path, LeNet& model) {
  std::ofstream file(path, std::ios::binary);
  for (const Parameter* parameter : model.parameters()) {
    file.write(reinterpret_cast<const char*>(parameter->value.data()),
               static_cast<std::streamsize>(parameter->value.size() * sizeof(float)));
  }
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot write the parameters there");
}

void TrainAndTest(const Flags& flags) {
  const auto start = std::chrono::steady_clock::now();
  ronda::init();
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
  if (ronda::rank() == 0 && !flags.dump_parameters.empty()) WriteParameters(flags.dump_parameters, trainer.model());
  reporter.Say(AccuracyText(accuracy, std::chrono::steady_clock::now() - start));
  ronda::shutdown();
}

int Main(const std::vector<std::string>& arguments) {
  try {
    const Flags flags = ParseFlags(arguments);
    if (flags.action == Flags::Action::kShowHelp) {
      std::cout << Usage();
    } else {
      TrainAndTest(flags);
    }
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << "lenet_mnist: " << error.what() << std::endl;
    return kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << "lenet_mnist: " << error.what() << std::endl;
    return kExitFailure;
  }
}

}  // namespace
}  // namespace lenet

int main(int argc, char** argv) { return lenet::Main({argv + 1, argv + argc}); }
