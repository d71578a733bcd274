// SPDX-License-Identifier: Apache-2.0

// Runs torch_finetune as its users do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/few_digits.h"
#include "tests/multiprocess/launcher_harness.h"

namespace torch_finetune {
namespace {

using ::ronda::LauncherRun;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> OnRanks(int ranks, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"-np", std::to_string(ranks), "examples/torch_finetune/torch_finetune"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

double AccuracyIn(const std::string& output) {
  const std::string label = "test accuracy ";
  const std::size_t found = output.find(label);
  return found == std::string::npos ? -1 : std::atof(output.c_str() + found + label.size());
}

TEST(TorchFinetune, TwoRanksLearnToReadDigits) {
  LauncherRun run(OnRanks(2, {}));
  ASSERT_EQ(run.Finish(), 0) << run.err();
  EXPECT_GE(AccuracyIn(run.out()), 0.97) << run.out();
  EXPECT_THAT(run.out(), HasSubstr("[0]<stdout>: even: training accuracy 0.9"));
  EXPECT_THAT(run.out(), HasSubstr("[0]<stdout>: digits: training accuracy 0.9"));
  EXPECT_THAT(run.out(), Not(HasSubstr("[1]<stdout>")));
}

// The first run stops in the first task, the second run in the second task, and the third run completes both tasks. The
// last run has one rank, which continues from the checkpoint of two ranks.
TEST(TorchFinetune, GoesOnWhereItWasStopped) {
  const lenet::FewDigits digits(960, 200);
  const lenet::TemporaryDirectory folder;
  const std::vector<std::string> flags = {"--data", digits.path(), "--checkpoints", folder.path(), "--first-epochs=2"};
  const auto with_steps = [&](int steps) {
    std::vector<std::string> all = flags;
    all.push_back("--steps=" + std::to_string(steps));
    return all;
  };
  LauncherRun first(OnRanks(2, with_steps(40)));
  ASSERT_EQ(first.Finish(), 0) << first.err();
  EXPECT_EQ(AccuracyIn(first.out()), -1) << first.out();
  LauncherRun second(OnRanks(2, with_steps(65)));
  ASSERT_EQ(second.Finish(), 0) << second.err();
  EXPECT_THAT(second.out(), HasSubstr("even goes on after step 40\n"));
  EXPECT_EQ(AccuracyIn(second.out()), -1) << second.out();
  LauncherRun third(OnRanks(2, flags));
  ASSERT_EQ(third.Finish(), 0) << third.err();
  EXPECT_THAT(third.out(), HasSubstr("even goes on after step 60\n"));
  EXPECT_THAT(third.out(), HasSubstr("digits goes on after step 65\n"));
  const double accuracy = AccuracyIn(third.out());
  EXPECT_GT(accuracy, 0.5) << third.out();
  LauncherRun alone(OnRanks(1, flags));
  ASSERT_EQ(alone.Finish(), 0) << alone.err();
  EXPECT_THAT(alone.out(), HasSubstr("digits goes on after step 90\n"));
  EXPECT_EQ(AccuracyIn(alone.out()), accuracy) << alone.out();
}

TEST(TorchFinetune, FlagsThatCannotBeObeyedEndWithTwo) {
  LauncherRun nonsense(OnRanks(1, {"--clip=0"}));
  EXPECT_EQ(nonsense.Finish(), 2);
  EXPECT_THAT(nonsense.err(), HasSubstr("torch_finetune: --clip takes a number from"));
  LauncherRun help(OnRanks(1, {"--help"}));
  EXPECT_EQ(help.Finish(), 0);
  EXPECT_THAT(help.out(), HasSubstr("--checkpoints"));
}

}  // namespace
}  // namespace torch_finetune
