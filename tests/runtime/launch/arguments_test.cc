#include "runtime/launch/arguments.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Action = LaunchOptions::Action;
using LinePrefix = LaunchOptions::LinePrefix;
using Words = std::vector<std::string>;

LaunchOptions Parsed(const Words& words) {
  const auto options = ParseArguments(words);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(LaunchOptions{});
}

TEST(ArgumentsTest, NumberOfRanksAndCommandAreEnough) {
  const LaunchOptions options = Parsed({"-np", "4", "./train"});
  EXPECT_EQ(options.action, Action::kRun);
  EXPECT_EQ(options.rank_count, 4);
  EXPECT_THAT(options.command, ElementsAre("./train"));
  EXPECT_TRUE(options.hosts.empty());
  EXPECT_FALSE(options.verbose);
  EXPECT_TRUE(options.output_directory.empty());
  EXPECT_EQ(options.line_prefix, LinePrefix::kRank);
  EXPECT_THAT(options.settings, IsEmpty());
  EXPECT_EQ(options.grace_period, absl::Seconds(5));
}

TEST(ArgumentsTest, EveryOptionIsRead) {
  const LaunchOptions options = Parsed({"-np",
                                        "2",
                                        "-H",
                                        "localhost:2",
                                        "--verbose",
                                        "--output-filename",
                                        "logs",
                                        "--prefix-output-with-timestamp",
                                        "--start-timeout",
                                        "1.5",
                                        "--grace-period",
                                        "0",
                                        "--autotune",
                                        "--autotune-log-file",
                                        "tuning.csv",
                                        "--autotune-steps-per-sample",
                                        "20",
                                        "./train",
                                        "--lr",
                                        "3"});
  EXPECT_THAT(options.hosts, ElementsAre(HostSlots{.host = "localhost", .slots = 2}));
  EXPECT_TRUE(options.verbose);
  EXPECT_EQ(options.output_directory, "logs");
  EXPECT_EQ(options.line_prefix, LinePrefix::kTimestampAndRank);
  EXPECT_THAT(options.settings,
              ElementsAre(Pair("RONDA_AUTOTUNE", "1"), Pair("RONDA_AUTOTUNE_LOG", "tuning.csv"),
                          Pair("RONDA_AUTOTUNE_STEPS_PER_SAMPLE", "20"), Pair("RONDA_START_TIMEOUT", "1.5s")));
  EXPECT_EQ(options.grace_period, absl::ZeroDuration());
  EXPECT_THAT(options.command, ElementsAre("./train", "--lr", "3"));
}

TEST(ArgumentsTest, LongNamesTakeTheirValueBehindAnEqualsSignToo) {
  const LaunchOptions options = Parsed({"--num-proc=3", "--hosts=localhost:3", "--output-filename=a=b", "x"});
  EXPECT_EQ(options.rank_count, 3);
  EXPECT_THAT(options.hosts, ElementsAre(HostSlots{.host = "localhost", .slots = 3}));
  EXPECT_EQ(options.output_directory, "a=b");
}

TEST(ArgumentsTest, OptionsOfTheCommandAreLeftAlone) {
  EXPECT_THAT(Parsed({"-np", "1", "sh", "-np", "0", "--help"}).command, ElementsAre("sh", "-np", "0", "--help"));
}

TEST(ArgumentsTest, DoubleDashEndsTheOptions) {
  EXPECT_THAT(Parsed({"-np", "1", "--", "--odd-name", "--"}).command, ElementsAre("--odd-name", "--"));
}

TEST(ArgumentsTest, TheLastOfARepeatedOptionCounts) { EXPECT_EQ(Parsed({"-np", "1", "-n", "2", "x"}).rank_count, 2); }

TEST(ArgumentsTest, AutotuneCanBeSwitchedOffToo) {
  EXPECT_THAT(Parsed({"-np", "1", "--autotune", "--no-autotune", "x"}).settings,
              ElementsAre(Pair("RONDA_AUTOTUNE", "0")));
}

TEST(ArgumentsTest, QuestionsNeedNoCommand) {
  EXPECT_EQ(Parsed({"--help"}).action, Action::kHelp);
  EXPECT_EQ(Parsed({"-h", "-np", "x"}).action, Action::kHelp);
  EXPECT_EQ(Parsed({"--version"}).action, Action::kVersion);
  EXPECT_EQ(Parsed({"-v"}).action, Action::kVersion);
  EXPECT_EQ(Parsed({"--check-build"}).action, Action::kCheckBuild);
}

struct BadArguments {
  Words words;
  std::string culprit;  // in the error
};

class BadArgumentsTest : public ::testing::TestWithParam<BadArguments> {};

TEST_P(BadArgumentsTest, AreRefusedWithTheCulpritNamed) {
  const auto options = ParseArguments(GetParam().words);
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(options.status().message()), HasSubstr(GetParam().culprit));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadArgumentsTest,
    ::testing::Values(
        BadArguments{{}, "-np is missing"}, BadArguments{{"./train"}, "-np is missing"},
        BadArguments{{"-np", "2"}, "command is missing"}, BadArguments{{"-np", "2", "--"}, "command is missing"},
        BadArguments{{"-np", "2", ""}, "command is missing"}, BadArguments{{"-np"}, "-np needs a value: -np N"},
        BadArguments{{"-np", "0", "x"}, "-np 4; got \"0\""}, BadArguments{{"-np", "x", "x"}, "-np 4; got \"x\""},
        BadArguments{{"-np", "-1", "x"}, "got \"-1\""}, BadArguments{{"-np", "2.5", "x"}, "got \"2.5\""},
        BadArguments{{"-np", "1025", "x"}, "from 1 to 1024"},
        BadArguments{{"-np", "99999999999999999999", "x"}, "got \"99999999999999999999\""},
        BadArguments{{"--num-proc=", "x"}, "--num-proc 4; got \"\""},
        BadArguments{{"--nope", "x"}, "unknown option \"--nope\""},
        BadArguments{{"--nope=3", "x"}, "unknown option \"--nope\""},
        BadArguments{{"-np=3", "x"}, "unknown option \"-np=3\""},
        BadArguments{{"--verbose=yes", "x"}, "--verbose takes no value"},
        BadArguments{{"-H", "localhost", "x"}, "-H localhost:4; got \"localhost\""},
        BadArguments{{"--output-filename=", "x"}, "--output-filename logs"},
        BadArguments{{"--grace-period", "soon", "x"}, "--grace-period 10; got \"soon\""},
        BadArguments{{"--grace-period", "-1", "x"}, "got \"-1\""},
        BadArguments{{"--grace-period", "nan", "x"}, "got \"nan\""},
        BadArguments{{"--grace-period", "inf", "x"}, "got \"inf\""},
        BadArguments{{"--autotune=1", "x"}, "--autotune takes no value"},
        BadArguments{{"--autotune-log-file=", "x"}, "--autotune-log-file tuning.csv"},
        BadArguments{{"--autotune-steps-per-sample", "3", "x"}, "from 4 to 1000"},
        BadArguments{{"--autotune-steps-per-sample", "1001", "x"}, "got \"1001\""},
        BadArguments{{"--autotune-steps-per-sample", "ten", "x"}, "got \"ten\""},
        BadArguments{{"--start-timeout", "0", "x"}, "--start-timeout 10; got \"0\""},
        BadArguments{{"--start-timeout", "86401", "x"}, "to 86400"}));

TEST(ArgumentsTest, HelpExplainsEveryOption) {
  const std::string help = HelpText();
  for (const char* name :
       {"-np", "--num-proc", "-H", "--hosts", "--verbose", "--output-filename", "--start-timeout",
        "--prefix-output-with-timestamp", "--grace-period", "--autotune", "--no-autotune", "--autotune-log-file",
        "--autotune-steps-per-sample", "--version", "--help", "--check-build"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
}

}  // namespace
}  // namespace ronda
