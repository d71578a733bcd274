// SPDX-License-Identifier: Apache-2.0

#include "programs/options/command_line.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/arguments.h"
#include "programs/options/option_table.h"
#include "tests/programs/options/fake_sources.h"

namespace ronda {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const OptionTable& Table() {
  static auto* const draft = new CommandLineDraft(nullptr);
  static const OptionTable table = RondarunOptions(draft);
  return table;
}

std::string ErrorOf(const std::vector<std::string>& words) {
  const auto options = ParseArguments(words, Sources({}));
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << words.front();
  return std::string(options.status().message());
}

TEST(OptionListTest, NoTwoOptionsShareAName) {
  std::set<absl::string_view> names;
  for (const Option& option : Table().options()) {
    for (const absl::string_view name : option.names) EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(OptionListTest, EveryNameFindsItsOptionWithDashesAndUnderscores) {
  for (const Option& option : Table().options()) {
    for (const absl::string_view name : option.names) EXPECT_EQ(Table().Find(name), &option) << name;
  }
  EXPECT_EQ(Table().Find("--nproc_per_node"), Table().Find("--nproc-per-node"));
  EXPECT_EQ(Table().Find("--log_dir"), Table().Find("--log-dir"));
  EXPECT_EQ(Table().Find("-launch_agent"), nullptr);
  EXPECT_EQ(Table().Find("np"), nullptr);
  EXPECT_EQ(Table().Find(""), nullptr);
}

TEST(OptionListTest, EveryOptionThatTakesAValueNeedsOne) {
  for (const Option& option : Table().options()) {
    if (option.value_name.empty() || option.kind == Option::Kind::kRefused) continue;
    if (option.value == Option::Value::kOptional) continue;
    for (const absl::string_view name : option.names) {
      const std::string right_form = absl::StrCat(name, " needs a value: ", name, " ", option.value_name);
      EXPECT_EQ(ErrorOf({std::string(name)}), right_form);
      if (option.value == Option::Value::kAnyWords) continue;
      EXPECT_EQ(ErrorOf({std::string(name), "--verbose", "x"}), right_form + "; got the option --verbose");
    }
  }
}

TEST(OptionListTest, NoOptionTakesAnEmptyValue) {
  for (const Option& option : Table().options()) {
    if (option.value_name.empty() || option.kind == Option::Kind::kRefused) continue;
    if (option.kind == Option::Kind::kWithoutEffect || option.value == Option::Value::kOptional) continue;
    const std::string name(option.names.front());
    EXPECT_THAT(ErrorOf({name, "", "x"}), AnyOf(StartsWith(name + " takes "), HasSubstr("-H takes HOST:SLOTS")));
  }
}

TEST(OptionListTest, OptionalValuesAreGivenWithAnEqualsSign) {
  int optional = 0;
  for (const Option& option : Table().options()) {
    if (option.value != Option::Value::kOptional) continue;
    ++optional;
    const std::string name(option.names.front());
    const auto alone = Table().Read({name, "9000"});
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(alone->options.front().use.value, "");
    EXPECT_EQ(alone->command, std::vector<std::string>{"9000"});
    EXPECT_EQ(Table().Read({name + "=9000", "x"})->options.front().use.value, "9000");
    EXPECT_THAT(ErrorOf({name + "=", "x"}), HasSubstr(name + " needs a value"));
    EXPECT_THAT(ErrorOf({name + "=?", "-np", "1", "x"}), HasSubstr(name + " takes "));
    EXPECT_THAT(HelpText(), HasSubstr(absl::StrCat(name, "[=", option.value_name, "]\n")));
  }
  EXPECT_GT(optional, 0);
}

TEST(OptionListTest, NoOtherOptionTakesAValue) {
  for (const Option& option : Table().options()) {
    if (!option.value_name.empty()) continue;
    for (const absl::string_view name : option.names) {
      if (!absl::StartsWith(name, "--")) continue;
      const std::string word = absl::StrCat(name, "=yes");
      EXPECT_EQ(ErrorOf({word, "x"}), absl::StrCat(name, " takes no value; got \"", word, "\""));
    }
  }
}

TEST(OptionListTest, RefusedOptionSaysWhatToDo) {
  int refused = 0;
  for (const Option& option : Table().options()) {
    if (option.kind != Option::Kind::kRefused) continue;
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
    EXPECT_EQ(std::string(Table().Unknown(wrong).message()),
              absl::StrCat("unknown option \"", wrong, "\"; is it ", right, "?"));
  }
}

// A program can define its own option table. The one in this test writes to the test's variables.
TEST(OptionTableTest, WritesToTheVariablesOfItsProgram) {
  int count = 0;
  bool verbose = false;
  std::string mode;
  const OptionTable table(
      {MakeOption("-n --count N", "How many.", IntegerInto(&count, {.what = "a number", .example = "1", .max = 9})),
       MakeOption("--verbose", "Say more.", Assign(&verbose, true)),
       MakeOption("--mode fast|exact", "How.", WordInto(&mode, {{"fast", "f"}, {"exact", "e"}}))},
      {{{"-n"}, {"--mode"}, "give one of them"}});
  const auto given = table.Read({"-n", "3", "--verbose", "file", "--mode"});
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_THAT(given->command, ::testing::ElementsAre("file", "--mode"));
  for (const GivenOption& option : given->options) EXPECT_TRUE(option.Apply().ok());
  EXPECT_EQ(count, 3);
  EXPECT_TRUE(verbose);
  const auto wrong = table.Read({"--mode=slow", "-n", "3"});
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_EQ(std::string(wrong->options.front().Apply().message()),
            "--mode takes fast, exact, for example --mode fast; got \"slow\"");
  EXPECT_EQ(std::string(table.CheckAgreement(wrong->options).message()),
            "--mode and -n do not go together: give one of them");
  EXPECT_EQ(table.Describe().find("Accepted"), std::string::npos);
  EXPECT_EQ(table.Describe().rfind("\nOptions:\n  -n, --count N\n", 0), 0U) << table.Describe();
}

TEST(OptionListTest, AnotherWordIsNoTypingError) {
  const std::vector<std::string> words = {"--completely-different", "-q", "--", "-", std::string(1000, '-')};
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(Table().Unknown(word).message()), Eq("unknown option \"" + word + "\""));
  }
}

bool IsExplained(const Option& option) {
  return option.kind != Option::Kind::kWithoutEffect && option.kind != Option::Kind::kRefused;
}

TEST(HelpTextTest, ExplainsEveryOptionUnderAllItsNames) {
  const std::string help = HelpText();
  for (const Option& option : Table().options()) {
    if (!IsExplained(option)) continue;
    for (const absl::string_view name : option.names) EXPECT_THAT(help, HasSubstr(std::string(name)));
    EXPECT_FALSE(option.help.empty()) << option.names.front();
    EXPECT_THAT(help, HasSubstr(std::string(option.help.substr(0, option.help.find('\n')))));
  }
}

TEST(HelpTextTest, NamesWhatChangesNothingAndLeavesOutWhatIsRefused) {
  const std::string help = HelpText();
  EXPECT_THAT(help, HasSubstr("--timeline-filename"));
  EXPECT_FALSE(absl::StrContains(help, "--jsrun"));
}

TEST(HelpTextTest, FitsATerminal) {
  for (const absl::string_view line : absl::StrSplit(HelpText(), '\n')) EXPECT_LE(line.size(), 94u) << line;
  EXPECT_THAT(HelpText(), StartsWith(UsageLine() + "\n"));
}

// The pages of the manual, docs/rondarun*.md, must describe every option, even those that rondarun refuses.
TEST(HelpTextTest, TheManualKnowsEveryOption) {
  std::string manual;
  for (const std::filesystem::directory_entry& page : std::filesystem::directory_iterator("docs")) {
    std::ifstream file(page.path());
    manual.append(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  ASSERT_FALSE(manual.empty());
  for (const Option& option : Table().options()) {
    for (const absl::string_view name : option.names) {
      // The manual must have the option in code font, alone or with its value.
      const bool is_there = absl::StrContains(manual, absl::StrCat("`", name, "`")) ||
                            absl::StrContains(manual, absl::StrCat("`", name, " "));
      EXPECT_TRUE(is_there) << name;
    }
  }
}

}  // namespace
}  // namespace ronda
