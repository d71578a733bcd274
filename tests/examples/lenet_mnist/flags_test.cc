// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace lenet {
namespace {

using ::testing::HasSubstr;

std::string ErrorFor(const std::vector<std::string>& arguments) {
  try {
    ParseFlags(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Flags, WithoutAnyTheDefaultsHold) {
  const Flags flags = ParseFlags({});
  EXPECT_EQ(flags.action, Flags::Action::kTrain);
  EXPECT_EQ(flags.data, "");
  EXPECT_EQ(flags.dump_parameters, "");
  EXPECT_EQ(flags.training.epochs, TrainingOptions().epochs);
}

TEST(Flags, BothFormsSetValues) {
  const Flags flags =
      ParseFlags({"--data", "d", "--epochs=3", "--batch-size", "64", "--lr=1e-2", "--momentum", "0.5",
                  "--seed=18446744073709551615", "--compression", "bf16", "--steps=0", "--dump-parameters", "p=q"});
  EXPECT_EQ(flags.data, "d");
  EXPECT_EQ(flags.training.epochs, 3u);
  EXPECT_EQ(flags.training.batch_size, 64u);
  EXPECT_EQ(flags.training.learning_rate, 0.01);
  EXPECT_EQ(flags.training.momentum, 0.5);
  EXPECT_EQ(flags.training.seed, 18446744073709551615u);
  EXPECT_EQ(flags.training.compression, ronda::Compression::bf16);
  EXPECT_EQ(flags.training.max_steps, 0u);
  EXPECT_EQ(flags.dump_parameters, "p=q");
}

TEST(Flags, HelpDescribesEveryFlag) {
  EXPECT_EQ(ParseFlags({"--help"}).action, Flags::Action::kShowHelp);
  for (const char* flag : {"--data", "--epochs", "--batch-size", "--lr", "--momentum", "--seed", "--compression",
                           "--steps", "--dump-parameters", "--help"}) {
    EXPECT_THAT(Usage("lenet_mnist"), HasSubstr(std::string("  ") + flag + " "));
  }
}

TEST(Flags, HelpTellsTheDefaultsThatHold) {
  const auto default_of = [](const std::string& flag) {
    const std::size_t line = Usage("lenet_mnist").find("  " + flag + " ");
    return std::atof(Usage("lenet_mnist").c_str() + Usage("lenet_mnist").find("(default: ", line) +
                     std::string("(default: ").size());
  };
  EXPECT_EQ(default_of("--epochs"), static_cast<double>(TrainingOptions().epochs));
  EXPECT_EQ(default_of("--batch-size"), static_cast<double>(kImagesPerRank));
  EXPECT_EQ(default_of("--lr"), TrainingOptions().learning_rate);
  EXPECT_EQ(default_of("--momentum"), TrainingOptions().momentum);
  EXPECT_EQ(default_of("--seed"), static_cast<double>(TrainingOptions().seed));
}

TEST(Flags, UnknownOnesAreNamed) {
  EXPECT_EQ(ErrorFor({"--epoch", "3"}), "there is no flag \"--epoch\"; --help lists those there are");
  EXPECT_EQ(ErrorFor({"digits"}), "there is no flag \"digits\"; --help lists those there are");
  EXPECT_EQ(ErrorFor({""}), "there is no flag \"\"; --help lists those there are");
}

TEST(Flags, MissingValueIsNamed) {
  EXPECT_EQ(ErrorFor({"--lr"}), "--lr takes a number from 0 to 1000, but nothing follows it");
}

TEST(Flags, NonsenseIsQuotedWithWhatTheFlagTakes) {
  EXPECT_EQ(ErrorFor({"--epochs", "x"}), "--epochs takes a number from 1 to 1000000, not \"x\"");
  EXPECT_EQ(ErrorFor({"--compression", "fp8"}), "--compression takes none, fp16 or bf16, not \"fp8\"");
  EXPECT_EQ(ErrorFor({"--data="}), "--data takes a directory, not \"\"");
  for (const char* value : {"0", "-1", "1000001", "3x", "3.5", "", " 3", "99999999999999999999"}) {
    EXPECT_NE(ErrorFor({"--epochs", value}), "no error") << value;
  }
  for (const char* value : {"-0.1", "1.1", "nan", "inf", "0.5x", ""}) {
    EXPECT_NE(ErrorFor({"--momentum", value}), "no error") << value;
  }
  EXPECT_NE(ErrorFor({"--seed", "-1"}), "no error");
}

}  // namespace
}  // namespace lenet
