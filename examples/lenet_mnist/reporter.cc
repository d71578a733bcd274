// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/reporter.h"

#include <cstdio>

namespace lenet {
namespace {

constexpr std::size_t kBarCells = 30;

std::string EpochText(const Reporter::Progress& progress) {
  return "epoch " + std::to_string(progress.epoch) + "/" + std::to_string(progress.epochs);
}

std::string RatesText(const Reporter::Progress& progress) {
  char text[80];
  std::snprintf(text, sizeof(text), "loss %.4f, %.0f images/s", progress.loss, progress.images_per_second);
  return text;
}

std::string Bar(std::size_t percent) {
  const std::size_t filled = percent * kBarCells / 100;
  return "[" + std::string(filled, '=') + std::string(kBarCells - filled, ' ') + "] " + std::to_string(percent) + "%";
}

}  // namespace

void Reporter::Say(const std::string& line) {
  if (mode_ != Mode::kSilent) *out_ << line << std::endl;
}

void Reporter::StepDone(const Progress& progress) {
  const std::size_t percent = progress.step * 100 / progress.steps;
  if (mode_ != Mode::kTerminal || percent == drawn_percent_) return;
  drawn_percent_ = percent;
  *out_ << "\r" << EpochText(progress) << " " << Bar(percent) << " " << RatesText(progress) << std::flush;
}

void Reporter::EpochDone(const Progress& progress) {
  const char* const erase_bar = mode_ == Mode::kTerminal ? "\r\033[K" : "";
  Say(erase_bar + EpochText(progress) + ": " + RatesText(progress));
}

}  // namespace lenet
