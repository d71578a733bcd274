// SPDX-License-Identifier: Apache-2.0

#include "programs/options/command_line.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "runtime/base/nearest_name.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Kind = Option::Kind;

constexpr size_t kLineWidth = 80;

std::string WithDashes(absl::string_view name) {
  return absl::StartsWith(name, "--") ? absl::StrReplaceAll(name, {{"_", "-"}}) : std::string(name);
}

bool Contains(const std::vector<absl::string_view>& names, const Option& option) {
  return std::find(names.begin(), names.end(), option.names.front()) != names.end();
}

absl::Status MissingValue(const GivenOption& given, absl::string_view instead) {
  return absl::InvalidArgumentError(
      absl::StrCat(given.use.name, " needs a value: ", given.use.name, " ", given.option->value_name, instead));
}

std::string DescribeValue(const Option& option) {
  if (option.value_name.empty()) return "";
  return option.value == Option::Value::kOptional ? absl::StrCat("[=", option.value_name, "]")
                                                  : absl::StrCat(" ", option.value_name);
}

std::string DescribeOption(const Option& option) {
  return absl::StrCat("  ", absl::StrJoin(option.names, ", "), DescribeValue(option), "\n        ",
                      absl::StrReplaceAll(option.help, {{"\n", "\n        "}}), "\n");
}

}  // namespace

absl::Status GivenOption::Apply() const {
  const absl::Status status = option->effect(use);
  if (status.ok() || where.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(where, status.message()));
}

const Option* OptionTable::Find(absl::string_view name) const {
  const std::string dashed = WithDashes(name);
  for (const Option& option : options_) {
    if (std::find(option.names.begin(), option.names.end(), dashed) != option.names.end()) return &option;
  }
  return nullptr;
}

// Returns "-np 2", as a suggestion, if `name` is "-np2" or "-np=2", which other launchers accept. Returns "" if `name`
// does not start with the name of an option.
std::string OptionTable::SplitOff(absl::string_view name) const {
  const size_t end = name.find_first_of("=0123456789");
  if (end == absl::string_view::npos) return "";
  const Option* const option = Find(name.substr(0, end));
  if (option == nullptr || option->value_name.empty()) return "";
  const absl::string_view value = absl::StripPrefix(name.substr(end), "=");
  return value.empty() ? "" : absl::StrCat(name.substr(0, end), " ", value);
}

absl::Status OptionTable::Unknown(absl::string_view name) const {
  if (const std::string split = SplitOff(name); !split.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown option \"", name, "\"; is it ", split, "?"));
  }
  std::vector<absl::string_view> known;
  for (const Option& option : options_) known.insert(known.end(), option.names.begin(), option.names.end());
  const absl::string_view nearest = NearestName(WithDashes(name), known);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown option \"", name, "\"", nearest.empty() ? "" : absl::StrCat("; is it ", nearest, "?")));
}

absl::Status OptionTable::ReadValue(const std::vector<std::string>& words, size_t* next, GivenOption* given) const {
  if (*next == words.size()) return MissingValue(*given, "");
  const std::string& word = words[(*next)++];
  if (given->option->value != Option::Value::kAnyWords && Find(word) != nullptr) {
    return MissingValue(*given, absl::StrCat("; got the option ", word));
  }
  absl::StrAppend(&given->use.value, given->use.value.empty() ? "" : " ", word);
  return absl::OkStatus();
}

// Reads the option at words[*next], with its value if it takes one, and advances *next past them.
absl::StatusOr<GivenOption> OptionTable::ReadOption(const std::vector<std::string>& words, size_t* next) const {
  const std::string& word = words[(*next)++];
  const size_t equals = absl::StartsWith(word, "--") ? word.find('=') : std::string::npos;
  GivenOption given;
  given.use.name = word.substr(0, equals);
  given.option = Find(given.use.name);
  if (given.option == nullptr) return Unknown(given.use.name);

  // A refused option takes no value here: the error should report the refusal, not a missing value.
  const bool takes_value = !given.option->value_name.empty() && given.option->kind != Kind::kRefused;
  if (equals != std::string::npos) {
    if (given.option->value_name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(given.use.name, " takes no value; got \"", word, "\""));
    }
    given.use.value = word.substr(equals + 1);
    const bool lacks_value = given.option->value == Option::Value::kOptional && given.use.value.empty();
    if (lacks_value) return MissingValue(given, ", or none without =");
  } else if (takes_value && given.option->value != Option::Value::kOptional) {
    RONDA_RETURN_IF_ERROR(ReadValue(words, next, &given));
    if (given.option->value == Option::Value::kTwo) RONDA_RETURN_IF_ERROR(ReadValue(words, next, &given));
  }
  return given;
}

absl::StatusOr<GivenWords> OptionTable::Read(const std::vector<std::string>& words) const {
  GivenWords given;
  size_t next = 0;
  while (next < words.size() && absl::StartsWith(words[next], "-")) {
    if (words[next] == "--") {
      ++next;
      break;
    }
    RONDA_ASSIGN_OR_RETURN(GivenOption option, ReadOption(words, &next));
    const Kind kind = option.option->kind;
    // Return the error of a refused option at once: the words after it may be its values, which would lead to
    // misleading errors.
    if (kind == Kind::kRefused) return option.Apply();
    given.options.push_back(std::move(option));
    if (kind == Kind::kQuestion) return given;
  }
  given.command.assign(words.begin() + static_cast<std::ptrdiff_t>(next), words.end());
  return given;
}

const OptionConflict* OptionTable::FindConflict(const Option& a, const Option& b) const {
  for (const OptionConflict& conflict : conflicts_) {
    if (Contains(conflict.these, a) && Contains(conflict.those, b)) return &conflict;
    if (Contains(conflict.these, b) && Contains(conflict.those, a)) return &conflict;
  }
  return nullptr;
}

absl::Status OptionTable::CheckAgreement(const std::vector<GivenOption>& given) const {
  for (auto a = given.begin(); a != given.end(); ++a) {
    for (auto b = given.begin(); b != a; ++b) {
      const OptionConflict* const conflict = FindConflict(*a->option, *b->option);
      if (conflict == nullptr) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(a->where, b->use.name, " and ", a->use.name, " do not go together: ", conflict->remedy));
    }
  }
  return absl::OkStatus();
}

std::vector<GivenOption> OptionTable::NotOverridden(const std::vector<GivenOption>& file,
                                                    const std::vector<GivenOption>& command_line) const {
  std::vector<GivenOption> left;
  std::copy_if(file.begin(), file.end(), std::back_inserter(left), [&](const GivenOption& in_file) {
    return std::none_of(command_line.begin(), command_line.end(), [&](const GivenOption& said) {
      const bool replaces = said.option == in_file.option && said.option->repetition == Option::Repetition::kReplaces;
      return replaces || FindConflict(*said.option, *in_file.option) != nullptr;
    });
  });
  return left;
}

// Lists the names of the options without effect, with as many names on each line as fit.
std::string OptionTable::ListWithoutEffect() const {
  std::string text;
  size_t column = kLineWidth;
  for (const Option& option : options_) {
    if (option.kind != Kind::kWithoutEffect) continue;
    const absl::string_view name = option.names.front();
    const bool fits = column + 1 + name.size() <= kLineWidth;
    const absl::string_view gap = fits ? " " : "\n  ";
    column = (fits ? column : 0) + gap.size() + name.size();
    absl::StrAppend(&text, gap, name);
  }
  return text;
}

std::string OptionTable::Describe() const {
  std::vector<std::pair<absl::string_view, std::string>> sections;
  for (const Option& option : options_) {
    if (option.kind == Kind::kWithoutEffect || option.kind == Kind::kRefused) continue;
    auto section = std::find_if(sections.begin(), sections.end(),
                                [&](const auto& known) { return known.first == option.section; });
    if (section == sections.end()) section = sections.insert(section, {option.section, ""});
    section->second += DescribeOption(option);
  }
  std::string text;
  for (const auto& [title, options] : sections) {
    absl::StrAppend(&text, "\n", title.empty() ? "Options" : title, ":\n", options);
  }
  const std::string without_effect = ListWithoutEffect();
  if (without_effect.empty()) return text;
  return absl::StrCat(text, "\nAccepted, for other launchers have them; they change nothing:", without_effect, "\n");
}

}  // namespace ronda
