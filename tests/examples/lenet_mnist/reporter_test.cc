// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/reporter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace lenet {
namespace {

Reporter::Progress ProgressAt(std::size_t step) {
  return {.epoch = 2, .epochs = 10, .step = step, .steps = 1000, .loss = 0.12345, .images_per_second = 4321.6};
}

TEST(Reporter, PrintsALineAnEpoch) {
  std::ostringstream out;
  Reporter reporter(&out, Reporter::Mode::kLines);
  for (std::size_t step = 1; step <= 1000; ++step) reporter.StepDone(ProgressAt(step));
  reporter.EpochDone(ProgressAt(1000));
  EXPECT_EQ(out.str(), "epoch 2/10: loss 0.1235, 4322 images/s\n");
}

TEST(Reporter, RedrawsTheBarInPlaceOnATerminal) {
  std::ostringstream out;
  Reporter reporter(&out, Reporter::Mode::kTerminal);
  reporter.StepDone(ProgressAt(500));
  EXPECT_EQ(out.str(), "\repoch 2/10 [===============               ] 50% loss 0.1235, 4322 images/s");
}

TEST(Reporter, RedrawsTheBarOnceAPercent) {
  std::ostringstream out;
  Reporter reporter(&out, Reporter::Mode::kTerminal);
  for (std::size_t step = 1; step <= 1000; ++step) reporter.StepDone(ProgressAt(step));
  const std::string drawn = out.str();
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\r'), 100);
}

TEST(Reporter, EpochLineReplacesTheBar) {
  std::ostringstream out;
  Reporter reporter(&out, Reporter::Mode::kTerminal);
  reporter.EpochDone(ProgressAt(1000));
  EXPECT_EQ(out.str(), "\r\033[Kepoch 2/10: loss 0.1235, 4322 images/s\n");
}

TEST(Reporter, SilentOneSaysNothing) {
  std::ostringstream out;
  Reporter reporter(&out, Reporter::Mode::kSilent);
  reporter.Say("hello");
  reporter.StepDone(ProgressAt(500));
  reporter.EpochDone(ProgressAt(1000));
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace lenet
