// SPDX-License-Identifier: Apache-2.0

// Runs torch_lenet as its users do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/few_digits.h"
#include "tests/multiprocess/launcher_harness.h"

namespace torch_lenet {
namespace {

using ::ronda::LauncherRun;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<std::string> OnRanks(int ranks, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"-np", std::to_string(ranks), "examples/torch_lenet/torch_lenet"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

double NumberAfter(const std::string& label, const std::string& output) {
  const std::size_t found = output.find(label);
  return found == std::string::npos ? -1 : std::atof(output.c_str() + found + label.size());
}

TEST(TorchLenet, TwoRanksLearnToReadDigits) {
  LauncherRun run(OnRanks(2, {}));
  ASSERT_EQ(run.Finish(), 0) << run.err();
  EXPECT_GE(NumberAfter("test accuracy ", run.out()), 0.97) << run.out();
  const std::vector<std::string> lines = ronda::Lines(run.out());
  ASSERT_EQ(lines.size(), 6u) << run.out();
  EXPECT_EQ(lines[0], "[0]<stdout>: LeNet with libtorch on 2 ranks, 8000 digits in batches of 32");
  EXPECT_THAT(lines[4], MatchesRegex("\\[0\\]<stdout>: epoch 4/4: loss [0-9]+\\.[0-9]+, [0-9]+ images/s"));
}

TEST(TorchLenet, RanksTrainAsOneProcess) {
  const lenet::FewDigits digits(960, 200);
  const std::vector<std::string> flags = {"--data", digits.path(), "--epochs=2"};
  LauncherRun alone(OnRanks(1, flags));
  ASSERT_EQ(alone.Finish(), 0) << alone.err();
  LauncherRun four(OnRanks(4, flags));
  ASSERT_EQ(four.Finish(), 0) << four.err();
  for (const std::string label : {"epoch 1/2: loss ", "epoch 2/2: loss "}) {
    EXPECT_GT(NumberAfter(label, alone.out()), 0) << alone.out();
    EXPECT_NEAR(NumberAfter(label, four.out()), NumberAfter(label, alone.out()), 0.01) << label;
  }
  EXPECT_NEAR(NumberAfter("test accuracy ", four.out()), NumberAfter("test accuracy ", alone.out()), 0.0151);
}

TEST(TorchLenet, FlagsThatCannotBeObeyedEndWithTwo) {
  LauncherRun nonsense(OnRanks(1, {"--epochs", "many"}));
  EXPECT_EQ(nonsense.Finish(), 2);
  EXPECT_THAT(nonsense.err(), HasSubstr("torch_lenet: --epochs takes a number from 1 to 1000000, not \"many\"\n"));
  LauncherRun unknown(OnRanks(1, {"--epoch=3"}));
  EXPECT_EQ(unknown.Finish(), 2);
  EXPECT_THAT(unknown.err(), HasSubstr("there is no flag \"--epoch\""));
  LauncherRun uneven(OnRanks(3, {}));
  EXPECT_EQ(uneven.Finish(), 2);
  EXPECT_THAT(uneven.err(), HasSubstr("a batch of 32 digits of 8000 cannot be shared equally by 3 ranks"));
}

TEST(TorchLenet, HelpNeedsNoJob) {
  LauncherRun run(OnRanks(1, {"--help"}));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.out(), HasSubstr("--batch-size"));
}

}  // namespace
}  // namespace torch_lenet
