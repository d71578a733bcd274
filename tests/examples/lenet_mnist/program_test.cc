// SPDX-License-Identifier: Apache-2.0

// Runs lenet_mnist as its users do, and checks its output and exit codes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/few_digits.h"
#include "tests/examples/lenet_mnist/idx_files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace lenet {
namespace {

using ::ronda::LauncherRun;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::vector<std::string> OnRanks(int ranks, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"-np", std::to_string(ranks), "examples/lenet_mnist/lenet_mnist"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

double AccuracyIn(const std::string& output) {
  const std::string label = "test accuracy ";
  const std::size_t found = output.find(label);
  return found == std::string::npos ? -1 : std::atof(output.c_str() + found + label.size());
}

TEST(LenetProgram, PrintsALineAnEpochAndTheAccuracy) {
  const FewDigits digits(640, 100);
  LauncherRun run(OnRanks(2, {"--data", digits.path(), "--epochs=2"}));
  ASSERT_EQ(run.Finish(), 0) << run.err();
  const std::vector<std::string> lines = ronda::Lines(run.out());
  ASSERT_EQ(lines.size(), 4u) << run.out();
  EXPECT_EQ(lines[0], "[0]<stdout>: LeNet-5 on 2 ranks, 640 digits in batches of 32");
  for (const std::size_t epoch : {1, 2}) {
    EXPECT_THAT(lines[epoch], MatchesRegex("\\[0\\]<stdout>: epoch " + std::to_string(epoch) +
                                           "/2: loss [0-9]+\\.[0-9]+, [0-9]+ images/s"));
  }
  EXPECT_THAT(lines[3], MatchesRegex("\\[0\\]<stdout>: test accuracy 0\\.[0-9]+ \\(2 ranks, [0-9]+ s\\)"));
}

TEST(LenetProgram, OneRankReadsTheDigitsThatComeWithIt) {
  LauncherRun run(OnRanks(1, {"--steps=0"}));
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.out(), MatchesRegex("(.|\n)*test accuracy 0\\.[0-9]+ \\(1 rank, [0-9]+ s\\)\n"));
}

TEST(LenetProgram, TestDigitsAreSharedWithoutLossOrRepetition) {
  LauncherRun alone(OnRanks(1, {"--batch-size=48", "--steps=30"}));
  ASSERT_EQ(alone.Finish(), 0) << alone.err();
  LauncherRun three(OnRanks(3, {"--batch-size=48", "--steps=30"}));
  ASSERT_EQ(three.Finish(), 0) << three.err();
  EXPECT_GT(AccuracyIn(alone.out()), 0.5);
  EXPECT_NEAR(AccuracyIn(three.out()), AccuracyIn(alone.out()), 0.0011);  // one or two borderline digits
}

TEST(LenetProgram, DrawsAProgressBarWhereTheLauncherHasATerminal) {
  LauncherRun run(OnRanks(2, {"--steps=30"}), {.output = LauncherRun::Output::kTerminal});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.out(), HasSubstr("epoch 1/10 [==                            ] 9%"));
}

TEST(LenetProgram, ASigtermEndsAllRanksAfterTheSameStepAndTheResultIsTested) {
  const FewDigits digits(640, 100);
  LauncherRun run({"-np", "2", "--grace-period", "100", "examples/lenet_mnist/lenet_mnist", "--data", digits.path(),
                   "--epochs=1000000"});
  run.WaitForOut("epoch 2/");
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Finish(), 128 + SIGTERM) << run.err();
  EXPECT_THAT(run.out(), AllOf(HasSubstr("asked to stop: ended after step "), HasSubstr("test accuracy ")));
}

TEST(LenetProgram, HelpNeedsNoJob) {
  LauncherRun run(OnRanks(1, {"--help"}));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.out(), HasSubstr("--dump-parameters"));
}

TEST(LenetProgram, NonsenseFlagsEndWithTwo) {
  LauncherRun run(OnRanks(2, {"--epochs", "many"}));
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_THAT(run.err(), HasSubstr("lenet_mnist: --epochs takes a number from 1 to 1000000, not \"many\"\n"));
}

TEST(LenetProgram, BatchesThatRanksCannotShareEndWithTwo) {
  LauncherRun run(OnRanks(3, {"--batch-size", "64"}));
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_THAT(run.err(), HasSubstr("lenet_mnist: a batch of 64 images cannot be shared equally by 3 ranks"));
}

TEST(LenetProgram, DamagedDataEndsWithOneAndTheFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.Write("train-images-idx3-ubyte.gz", Gzip(IdxBytes({1, 28, 28}, "too short")));
  directory.Write("train-labels-idx1-ubyte", IdxBytes({1}, "\x01"));
  LauncherRun run(OnRanks(2, {"--data", directory.path()}));
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.LastLine(),
              HasSubstr("lenet_mnist: " + path + ": truncated: its header announces 1x28x28 bytes, but 9 follow"));
}

TEST(LenetProgram, ErrorsOfRondaEndWithOneAndTheirText) {
  LauncherRun run(OnRanks(1, {}), {.environment = {"RONDA_FUSION_THRESHOLD=plenty"}});
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("lenet_mnist: "), HasSubstr("RONDA_FUSION_THRESHOLD")));
  EXPECT_THAT(run.out(), Not(HasSubstr("epoch")));
}

TEST(LenetProgram, ParametersThatCannotBeWrittenEndWithOne) {
  LauncherRun run(OnRanks(1, {"--steps=0", "--dump-parameters=/nowhere/parameters"}));
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.err(), HasSubstr("lenet_mnist: /nowhere/parameters: cannot write the parameters there\n"));
}

}  // namespace
}  // namespace lenet
