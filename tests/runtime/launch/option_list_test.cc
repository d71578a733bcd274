#include "runtime/launch/option_list.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/launch/arguments.h"
#include "tests/runtime/launch/fake_sources.h"

namespace ronda {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::vector<std::string>& words) {
  const auto options = ParseArguments(words, Sources({}));
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << words.front();
  return std::string(options.status().message());
}

TEST(OptionListTest, NoTwoOptionsShareAName) {
  std::set<absl::string_view> names;
  for (const Option& option : Options()) {
    for (const absl::string_view name : option.names) EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(OptionListTest, EveryNameFindsItsOptionWithDashesAndUnderscores) {
  for (const Option& option : Options()) {
    for (const absl::string_view name : option.names) EXPECT_EQ(FindOption(name), &option) << name;
  }
  EXPECT_EQ(FindOption("--nproc_per_node"), FindOption("--nproc-per-node"));
  EXPECT_EQ(FindOption("--log_dir"), FindOption("--log-dir"));
  EXPECT_EQ(FindOption("-launch_agent"), nullptr);
  EXPECT_EQ(FindOption("np"), nullptr);
  EXPECT_EQ(FindOption(""), nullptr);
}

TEST(OptionListTest, EveryOptionThatTakesAValueNeedsOne) {
  for (const Option& option : Options()) {
    if (option.value_name.empty() || option.group == OptionGroup::kRefused) continue;
    for (const absl::string_view name : option.names) {
      const std::string right_form = absl::StrCat(name, " needs a value: ", name, " ", option.value_name);
      EXPECT_EQ(ErrorOf({std::string(name)}), right_form);
      if (option.value == Option::Value::kAnyWords) continue;
      EXPECT_EQ(ErrorOf({std::string(name), "--verbose", "x"}), right_form + "; got the option --verbose");
    }
  }
}

TEST(OptionListTest, NoOptionTakesAnEmptyValue) {
  for (const Option& option : Options()) {
    if (option.value_name.empty() || option.group == OptionGroup::kRefused) continue;
    if (option.group == OptionGroup::kWithoutEffect) continue;
    const std::string name(option.names.front());
    EXPECT_THAT(ErrorOf({name, "", "x"}), AnyOf(StartsWith(name + " takes "), HasSubstr("-H takes HOST:SLOTS")));
  }
}

TEST(OptionListTest, NoOtherOptionTakesAValue) {
  for (const Option& option : Options()) {
    if (!option.value_name.empty()) continue;
    for (const absl::string_view name : option.names) {
      if (!absl::StartsWith(name, "--")) continue;
      const std::string word = absl::StrCat(name, "=yes");
      EXPECT_EQ(ErrorOf({word, "x"}), absl::StrCat(name, " takes no value; got \"", word, "\""));
    }
  }
}

TEST(OptionListTest, WhatIsRefusedSaysWhatToDo) {
  int refused = 0;
  for (const Option& option : Options()) {
    if (option.group != OptionGroup::kRefused) continue;
    ++refused;
    for (const absl::string_view name : option.names) {
      EXPECT_THAT(ErrorOf({"-np", "2", std::string(name), "x"}),
                  StartsWith(absl::StrCat(name, " is not for rondarun: ")));
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(OptionListTest, ATypingErrorFindsTheNameThatWasMeant) {
  const std::pair<const char*, const char*> errors[] = {{"--verbos", "--verbose"},
                                                        {"--fusion-treshold-mb", "--fusion-threshold-mb"},
                                                        {"--hostfiles", "--hostfile"},
                                                        {"--fusion", "--fusion-threshold-mb"},
                                                        {"--nproc_per_nod", "--nproc-per-node"}};
  for (const auto& [wrong, right] : errors) {
    EXPECT_EQ(std::string(UnknownOption(wrong).message()),
              absl::StrCat("unknown option \"", wrong, "\"; is it ", right, "?"));
  }
}

TEST(OptionListTest, AnotherWordIsNoTypingError) {
  const std::vector<std::string> words = {"--completely-different", "-q", "--", "-", std::string(1000, '-')};
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(UnknownOption(word).message()), Eq("unknown option \"" + word + "\""));
  }
}

}  // namespace
}  // namespace ronda
