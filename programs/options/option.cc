// SPDX-License-Identifier: Apache-2.0

#include "programs/options/option.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Formats a number as a user would write it: for example, 3600000 without an exponent.
std::string Plain(double number) {
  return number == std::floor(number) ? absl::StrCat(static_cast<int64_t>(number)) : absl::StrCat(number);
}

bool IsWholeIfNeeded(double number, NumberForm::Digits digits) {
  return digits == NumberForm::Digits::kAny || number == std::floor(number);
}

// Returns whether `text` is a plain number. SimpleAtod() also accepts words such as 1e3 and nan, which are typos on a
// command line.
bool HasOnlyDigits(absl::string_view text, NumberForm::Digits digits) {
  const absl::string_view allowed = digits == NumberForm::Digits::kWhole ? "0123456789" : "0123456789.";
  return !text.empty() && text.find_first_not_of(allowed) == absl::string_view::npos;
}

}  // namespace

Option MakeOption(absl::string_view spec, std::string help, OptionEffect effect) {
  Option option{.names = {}, .value_name = "", .help = std::move(help), .effect = std::move(effect)};
  for (const absl::string_view word : absl::StrSplit(spec, ' ')) {
    if (absl::StartsWith(word, "-")) {
      option.names.push_back(word);
    } else {
      option.value_name = word;
    }
  }
  return option;
}

absl::Status BadValue(const OptionUse& use, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(use.name, " takes ", expected, "; got \"", use.value, "\""));
}

absl::StatusOr<double> ParseNumber(const OptionUse& use, const NumberForm& form) {
  double number = 0;
  if (!HasOnlyDigits(use.value, form.digits) || !absl::SimpleAtod(use.value, &number) || number < form.min ||
      number > form.max || !IsWholeIfNeeded(number, form.digits)) {
    return BadValue(use, absl::StrCat(form.what, " from ", Plain(form.min), " to ", Plain(form.max), ", for example ",
                                      use.name, " ", form.example));
  }
  return number;
}

absl::StatusOr<int> ParseInteger(const OptionUse& use, const NumberForm& form) {
  RONDA_ASSIGN_OR_RETURN(const double number, ParseNumber(use, form));
  return static_cast<int>(number);
}

absl::StatusOr<std::string> ParseText(const OptionUse& use, const TextForm& form) {
  if (use.value.empty()) return BadValue(use, absl::StrCat(form.what, ", for example ", use.name, " ", form.example));
  return use.value;
}

absl::StatusOr<std::vector<std::string>> ParseList(const OptionUse& use, const TextForm& form) {
  std::vector<std::string> elements = absl::StrSplit(use.value, ',');
  const bool has_gap =
      std::any_of(elements.begin(), elements.end(), [](const std::string& element) { return element.empty(); });
  if (has_gap) return BadValue(use, absl::StrCat(form.what, ", for example ", use.name, " ", form.example));
  return elements;
}

absl::StatusOr<size_t> ParseChoice(const OptionUse& use, const std::vector<absl::string_view>& words) {
  const auto found = std::find_if(words.begin(), words.end(),
                                  [&](absl::string_view word) { return absl::EqualsIgnoreCase(use.value, word); });
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  return BadValue(use, absl::StrCat(absl::StrJoin(words, ", "), ", for example ", use.name, " ", words.front()));
}

OptionEffect TextInto(std::string* place, TextForm form) {
  return [place, form](const OptionUse& use) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(*place, ParseText(use, form));
    return absl::OkStatus();
  };
}

}  // namespace ronda
