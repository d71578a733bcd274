#include "runtime/launch/help_text.h"

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/launch/option_list.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

bool IsExplained(const Option& option) {
  return option.group != OptionGroup::kWithoutEffect && option.group != OptionGroup::kRefused;
}

TEST(HelpTextTest, ExplainsEveryOptionUnderAllItsNames) {
  const std::string help = HelpText();
  for (const Option& option : Options()) {
    if (!IsExplained(option)) continue;
    for (const absl::string_view name : option.names) EXPECT_THAT(help, HasSubstr(std::string(name)));
    EXPECT_FALSE(option.help.empty()) << option.names.front();
    EXPECT_THAT(help, HasSubstr(std::string(option.help.substr(0, option.help.find('\n')))));
  }
}

TEST(HelpTextTest, NamesWhatChangesNothingAndLeavesOutWhatIsRefused) {
  const std::string help = HelpText();
  EXPECT_THAT(help, HasSubstr("--timeline-filename"));
  EXPECT_FALSE(absl::StrContains(help, "--gloo"));
}

TEST(HelpTextTest, FitsATerminal) {
  for (const absl::string_view line : absl::StrSplit(HelpText(), '\n')) EXPECT_LE(line.size(), 94u) << line;
  EXPECT_THAT(HelpText(), StartsWith(UsageLine() + "\n"));
}

// The manual has every option, also those that are refused.
TEST(HelpTextTest, TheManualKnowsEveryOption) {
  std::ifstream file("docs/rondarun.md");
  const std::string manual((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(manual.empty());
  for (const Option& option : Options()) {
    for (const absl::string_view name : option.names) {
      // As code, alone or with what it takes.
      const bool is_there = absl::StrContains(manual, absl::StrCat("`", name, "`")) ||
                            absl::StrContains(manual, absl::StrCat("`", name, " "));
      EXPECT_TRUE(is_there) << name;
    }
  }
}

}  // namespace
}  // namespace ronda
