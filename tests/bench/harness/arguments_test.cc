// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/harness/arguments.h"

namespace ronda::bench {
namespace {

struct Settings {
  size_t bytes = 4;
  int rounds = 9;
  std::vector<size_t> sizes;
  std::vector<std::string> ops = {"sum"};
  std::string mode = "fast";
  absl::Duration time = absl::Milliseconds(20);
  double factor = 1;
  std::string file;
};

Flags MakeFlags(Settings* settings) {
  Flags flags("example", "Does nothing.");
  flags.Add({.names = {"-b", "--bytes"}, .value = "SIZE", .help = "Bytes."}, Size(&settings->bytes));
  flags.Add({.names = {"--rounds"}, .value = "N", .help = "Rounds,\nor so."},
            Integer(&settings->rounds, {.min = 1, .max = 100}));
  flags.Add({.names = {"--sizes"}, .value = "LIST", .help = "Sizes."}, SizeList(&settings->sizes));
  flags.Add({.names = {"--op"}, .value = "LIST", .help = "Operations."}, ChoiceList(&settings->ops, {"sum", "min"}));
  flags.Add({.names = {"--mode"}, .value = "MODE", .help = "Mode."}, Choice(&settings->mode, {"fast", "slow"}));
  flags.Add({.names = {"--time"}, .value = "TIME", .help = "Time."}, Duration(&settings->time));
  flags.Add({.names = {"--factor"}, .value = "X", .help = "Factor."}, Number(&settings->factor));
  flags.Add({.names = {"--file"}, .value = "FILE", .help = "File."}, Text(&settings->file));
  return flags;
}

std::string ErrorOf(const std::vector<std::string>& words) {
  Settings settings;
  return std::string(MakeFlags(&settings).Parse(words).message());
}

TEST(FlagsTest, ValuesFollowTheNameOrAnEqualsSign) {
  Settings settings;
  Flags flags = MakeFlags(&settings);
  ASSERT_TRUE(flags.Parse({"-b", "64KiB", "--rounds=3", "--time", "5ms", "--factor", "2.5", "--file=a=b"}).ok());
  EXPECT_EQ(settings.bytes, size_t{64} << 10);
  EXPECT_EQ(settings.rounds, 3);
  EXPECT_EQ(settings.time, absl::Milliseconds(5));
  EXPECT_EQ(settings.factor, 2.5);
  EXPECT_EQ(settings.file, "a=b");
}

TEST(FlagsTest, AnOptionThatIsNotGivenKeepsItsDefault) {
  Settings settings;
  Flags flags = MakeFlags(&settings);
  ASSERT_TRUE(flags.Parse({}).ok());
  EXPECT_EQ(settings.bytes, 4u);
  EXPECT_EQ(settings.mode, "fast");
  EXPECT_FALSE(flags.help_requested());
}

TEST(FlagsTest, ALaterOptionReplacesAnEarlierOne) {
  Settings settings;
  Flags flags = MakeFlags(&settings);
  ASSERT_TRUE(flags.Parse({"--sizes", "1,2", "--sizes", "4K"}).ok());
  EXPECT_EQ(settings.sizes, std::vector<size_t>{4096});
}

TEST(FlagsTest, AllStandsForEveryChoice) {
  Settings settings;
  Flags flags = MakeFlags(&settings);
  ASSERT_TRUE(flags.Parse({"--op", "all", "--mode", "slow"}).ok());
  EXPECT_EQ(settings.ops, (std::vector<std::string>{"sum", "min"}));
  EXPECT_EQ(settings.mode, "slow");
}

TEST(FlagsTest, ErrorsQuoteTheCulpritAndSayWhatIsRight) {
  EXPECT_EQ(ErrorOf({"--size", "3"}), "unknown option \"--size\"; is it --sizes?");
  EXPECT_EQ(ErrorOf({"fast"}), "\"fast\" is not an option");
  EXPECT_EQ(ErrorOf({"--rounds"}), "--rounds needs a value: --rounds N");
  EXPECT_EQ(ErrorOf({"--rounds", "101"}), "--rounds takes a whole number from 1 to 100; got \"101\"");
  EXPECT_EQ(ErrorOf({"--rounds", "3.5"}), "--rounds takes a whole number from 1 to 100; got \"3.5\"");
  EXPECT_EQ(ErrorOf({"-b", "many"}), "-b takes a size such as 4, 64KiB or 256M; got \"many\"");
  EXPECT_EQ(ErrorOf({"--op", "sum,max"}), "--op takes all, or a list of sum, min; got \"sum,max\"");
  EXPECT_EQ(ErrorOf({"--mode", "idle"}), "--mode takes one of fast, slow; got \"idle\"");
  EXPECT_EQ(ErrorOf({"--time", "-1ms"}), "--time takes a duration such as 100ms or 0; got \"-1ms\"");
  EXPECT_EQ(ErrorOf({"--factor", "nan"}), "--factor takes a number from 0 up; got \"nan\"");
  EXPECT_EQ(ErrorOf({"--sizes", "1,,2"}), "--sizes takes a list with commas and no empty entry; got \"1,,2\"");
}

TEST(FlagsTest, AListWithAnErrorLeavesTheOldOneAlone) {
  Settings settings;
  settings.sizes = {7};
  Flags flags = MakeFlags(&settings);
  EXPECT_FALSE(flags.Parse({"--sizes", "1,x"}).ok());
  EXPECT_EQ(settings.sizes, std::vector<size_t>{7});
}

TEST(FlagsTest, HelpEndsTheReadingAndNamesEveryOption) {
  Settings settings;
  Flags flags = MakeFlags(&settings);
  ASSERT_TRUE(flags.Parse({"--help", "--nonsense"}).ok());
  EXPECT_TRUE(flags.help_requested());
  const std::string help = flags.Help();
  for (const char* part :
       {"usage: ronda-bench example [OPTION]...", "Does nothing.", "-b, --bytes SIZE", "Rounds,\n        or so."}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << " is not in\n" << help;
  }
}

TEST(FlagsTest, OperandsAreTakenWhereTheyAreAllowed) {
  Settings settings;
  std::vector<std::string> operands;
  Flags flags = MakeFlags(&settings);
  flags.AllowOperands("DIR", &operands);
  ASSERT_TRUE(flags.Parse({"one", "--rounds", "2", "two"}).ok());
  EXPECT_EQ(operands, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(flags.Usage(), "usage: ronda-bench example [OPTION]... DIR");
}

enum class Color { kRed, kBlue };
const char* Name(Color color) { return color == Color::kRed ? "red" : "blue"; }

TEST(NamedTest, ValuesAreReadByTheirNames) {
  Color one = Color::kRed;
  std::vector<Color> several;
  const Flags::Reader read_one = Named(&one, {Color::kRed, Color::kBlue});
  const Flags::Reader read_several = NamedList(&several, {Color::kRed, Color::kBlue});
  EXPECT_TRUE(read_one("blue").ok());
  EXPECT_EQ(one, Color::kBlue);
  EXPECT_EQ(read_one("all").message(), "one of red, blue");
  EXPECT_TRUE(read_several("blue,red").ok());
  EXPECT_EQ(several, (std::vector<Color>{Color::kBlue, Color::kRed}));
  EXPECT_TRUE(read_several("all").ok());
  EXPECT_EQ(several.size(), 2u);
  EXPECT_EQ(read_several("green").message(), "all, or a list of red, blue");
}

TEST(ParseSizeTest, UnitsArePowersOf1024) {
  EXPECT_EQ(*ParseSize("0"), 0u);
  EXPECT_EQ(*ParseSize("17"), 17u);
  EXPECT_EQ(*ParseSize("4k"), 4096u);
  EXPECT_EQ(*ParseSize("4KB"), 4096u);
  EXPECT_EQ(*ParseSize("4KiB"), 4096u);
  EXPECT_EQ(*ParseSize("3M"), size_t{3} << 20);
  EXPECT_EQ(*ParseSize("2GiB"), size_t{2} << 30);
  EXPECT_EQ(*ParseSize("1T"), size_t{1} << 40);
  EXPECT_EQ(*ParseSize("8B"), 8u);
}

TEST(ParseSizeTest, NonsenseAndOverflowAreRefused) {
  for (const char* text :
       {"", "K", "4X", "4KK", "-1", "1.5M", "4 K", "iB", "4iB", "99999999999G", "18446744073709551616"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ronda::bench
