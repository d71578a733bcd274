// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "examples/lenet_mnist/random.h"

namespace cuda_mnist {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the images per second over `steps` steps, including the time until the device has finished. Runs one untimed
// step first, so that all ranks begin at the same time. (A barrier would unlock the schedule, because it is not part of
// the locked schedule of the steps.)
double ImagesPerSecond(std::size_t steps, Trainer::Communication communication, Device& device, Trainer& trainer) {
  trainer.TrainStep(0, Trainer::Communication::kGradients);
  device.Synchronize();
  const Clock::time_point start = Clock::now();
  for (std::size_t step = 0; step < steps; ++step) {
    trainer.TrainStep(step % trainer.steps_per_epoch(), communication);
  }
  device.Synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<double>(steps * trainer.batch_size()) / seconds;
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

lenet::MnistImages MadeUpDigits(std::size_t count) {
  lenet::RandomNumbers random(/*seed=*/1, /*stream=*/0);
  lenet::MnistImages digits;
  digits.pixels.resize(count * lenet::kImagePixels);
  for (std::uint8_t& pixel : digits.pixels) pixel = static_cast<std::uint8_t>(random.Below(256));
  digits.labels.resize(count);
  for (std::uint8_t& label : digits.labels) label = static_cast<std::uint8_t>(random.Below(lenet::kDigits));
  return digits;
}

std::string BenchResult::text() const {
  char text[160];
  std::snprintf(text, sizeof(text), "%.0f images/s; %.0f without communication: it adds %.1f %% to a step",
                images_per_second, images_per_second_alone, 100 * overhead());
  std::string whole = text;
  if (control_messages > 0) {
    whole += "; with " + std::to_string(control_messages) + " control messages: steps were not locked throughout";
  }
  return whole;
}

BenchResult RunBench(const BenchOptions& options, Device& device, Trainer& trainer) {
  using Communication = Trainer::Communication;
  trainer.StartEpoch(0);
  // The first steps lock the schedule, and let cuBLAS choose its kernels.
  ImagesPerSecond(options.steps, Communication::kGradients, device, trainer);
  const std::uint64_t reports = ronda::statistics().reports_sent;
  std::vector<double> together, alone;
  for (int i = 0; i < options.measurements; ++i) {
    together.push_back(ImagesPerSecond(options.steps, Communication::kGradients, device, trainer));
    alone.push_back(ImagesPerSecond(options.steps, Communication::kNone, device, trainer));
  }
  return {.images_per_second = MedianOf(together),
          .images_per_second_alone = MedianOf(alone),
          .control_messages = ronda::statistics().reports_sent - reports};
}

}  // namespace cuda_mnist
