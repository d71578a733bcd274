// SPDX-License-Identifier: Apache-2.0

#include "programs/options/option.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

constexpr NumberForm kSteps = {.what = "a number of steps", .example = "10", .min = 4, .max = 2000000};
constexpr NumberForm kSeconds = {
    .what = "a number of seconds", .example = "1.5", .min = 0.5, .max = 60, .digits = NumberForm::Digits::kAny};

OptionUse Use(const std::string& value) { return {.name = "--some", .value = value}; }

std::string Message(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(OptionValueTest, NumbersWithinTheirRangeAreRead) {
  EXPECT_EQ(*ParseInteger(Use("4"), kSteps), 4);
  EXPECT_EQ(*ParseInteger(Use("2000000"), kSteps), 2000000);
  EXPECT_EQ(*ParseNumber(Use("0.5"), kSeconds), 0.5);
  EXPECT_EQ(*ParseNumber(Use("60"), kSeconds), 60);
}

TEST(OptionValueTest, OtherNumbersAreQuotedWithTheRangeAndAnExample) {
  for (const std::string text : {"", "3", "2000001", "4.5", "1e3", "0x10", "-4", "+4", " 4", "4 ", "four", "inf", "nan",
                                 "99999999999999999999999"}) {
    EXPECT_EQ(Message(ParseInteger(Use(text), kSteps).status()),
              "--some takes a number of steps from 4 to 2000000, for example --some 10; got \"" + text + "\"");
  }
  for (const std::string text : {"", ".", "0.4", "60.1", "1.2.3", "1e1", "-1", "nan"}) {
    EXPECT_EQ(Message(ParseNumber(Use(text), kSeconds).status()),
              "--some takes a number of seconds from 0.5 to 60, for example --some 1.5; got \"" + text + "\"");
  }
}

TEST(OptionValueTest, TextIsNotEmpty) {
  const TextForm form = {.what = "a file", .example = "a.csv"};
  EXPECT_EQ(*ParseText(Use("x"), form), "x");
  EXPECT_EQ(Message(ParseText(Use(""), form).status()), "--some takes a file, for example --some a.csv; got \"\"");
}

TEST(OptionValueTest, ListsHaveNoGaps) {
  const TextForm form = {.what = "names", .example = "a,b"};
  EXPECT_THAT(*ParseList(Use("a"), form), ElementsAre("a"));
  EXPECT_THAT(*ParseList(Use("a,b"), form), ElementsAre("a", "b"));
  for (const std::string text : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_EQ(Message(ParseList(Use(text), form).status()),
              "--some takes names, for example --some a,b; got \"" + text + "\"");
  }
}

}  // namespace
}  // namespace ronda
