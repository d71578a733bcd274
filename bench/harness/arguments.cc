// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/arguments.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "programs/options/command_line.h"

namespace ronda::bench {
namespace {

constexpr absl::string_view kSection = "Options";

absl::Status Expected(absl::string_view form) { return absl::InvalidArgumentError(form); }

bool IsAmong(const std::vector<std::string>& choices, const std::string& word) {
  return std::find(choices.begin(), choices.end(), word) != choices.end();
}

absl::Status ReadSize(const std::string& text, size_t* value) {
  RONDA_ASSIGN_OR_RETURN(*value, ParseSize(text));
  return absl::OkStatus();
}

absl::Status ReadInteger(const std::string& text, IntegerRange range, int* value) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < range.min || number > range.max) {
    return Expected(absl::StrCat("a whole number from ", range.min, " to ", range.max));
  }
  *value = static_cast<int>(number);
  return absl::OkStatus();
}

absl::Status ReadDuration(const std::string& text, absl::Duration* value) {
  if (!absl::ParseDuration(text, value) || *value < absl::ZeroDuration() || *value == absl::InfiniteDuration()) {
    return Expected("a duration such as 100ms or 0");
  }
  return absl::OkStatus();
}

// Returns a reader of a comma-separated list. It reads each value with `read_one`. If the list has an error, leaves
// *values unchanged.
template <typename T, typename ReadOne>
Flags::Reader ListOf(std::vector<T>* values, ReadOne read_one) {
  return [values, read_one](const std::string& text) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(const std::vector<std::string> words, SplitList(text));
    std::vector<T> read(words.size());
    for (size_t i = 0; i < words.size(); ++i) RONDA_RETURN_IF_ERROR(read_one(words[i], &read[i]));
    *values = std::move(read);
    return absl::OkStatus();
  };
}

}  // namespace

Flags::Flags(std::string command, std::string description)
    : command_(std::move(command)), description_(std::move(description)) {
  Option help = MakeOption("-h --help", "Show this text.", [](const OptionUse&) { return absl::OkStatus(); });
  help.kind = Option::Kind::kQuestion;
  help.section = kSection;
  options_.push_back(std::move(help));
}

void Flags::Add(Flag flag, Reader reader) {
  Option option = {.names = std::move(flag.names), .value_name = flag.value, .help = std::move(flag.help)};
  option.effect = [reader = std::move(reader)](const OptionUse& use) {
    const absl::Status status = reader(use.value);
    return status.ok() ? status : BadValue(use, status.message());
  };
  option.section = kSection;
  options_.insert(options_.end() - 1, std::move(option));
}

void Flags::AllowOperands(std::string name, std::vector<std::string>* operands) {
  operand_name_ = std::move(name);
  operands_ = operands;
}

absl::Status Flags::Parse(const std::vector<std::string>& words) {
  const OptionTable table(options_);
  GivenWords given = {.command = words};
  do {
    RONDA_ASSIGN_OR_RETURN(given, table.Read(given.command));
    for (const GivenOption& option : given.options) {
      help_requested_ = help_requested_ || option.option->kind == Option::Kind::kQuestion;
      RONDA_RETURN_IF_ERROR(option.Apply());
    }
    if (given.command.empty()) break;
    const std::string& word = given.command.front();
    if (operands_ == nullptr) return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is not an option"));
    operands_->push_back(word);
    given.command.erase(given.command.begin());
  } while (!given.command.empty());
  return absl::OkStatus();
}

std::string Flags::Usage() const {
  return absl::StrCat("usage: ronda-bench ", command_, " [OPTION]...", operand_name_.empty() ? "" : " ", operand_name_);
}

std::string Flags::Help() const {
  return absl::StrCat(Usage(), "\n\n", description_, "\n", OptionTable(options_).Describe());
}

absl::StatusOr<size_t> ParseSize(absl::string_view text) {
  const absl::Status error = Expected("a size such as 4, 64KiB or 256M");
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text.substr(0, digits), &number)) return error;
  std::string unit = absl::AsciiStrToLower(text.substr(digits));
  if (absl::EndsWith(unit, "ib")) {
    unit.resize(unit.size() - 2);
    if (unit.empty()) return error;
  } else if (absl::EndsWith(unit, "b")) {
    unit.pop_back();
  }
  const size_t power = unit.empty() ? 0 : absl::string_view("kmgt").find(unit) + 1;
  if (unit.size() > 1 || (!unit.empty() && power == 0)) return error;
  const size_t shift = 10 * power;
  if (number > (std::numeric_limits<size_t>::max() >> shift)) return error;
  return static_cast<size_t>(number << shift);
}

absl::StatusOr<std::vector<std::string>> SplitList(absl::string_view text) {
  std::vector<std::string> words = absl::StrSplit(text, ',');
  for (const std::string& word : words) {
    if (word.empty()) return Expected("a list with commas and no empty entry");
  }
  return words;
}

Flags::Reader Size(size_t* value) {
  return [value](const std::string& text) { return ReadSize(text, value); };
}

Flags::Reader SizeList(std::vector<size_t>* values) { return ListOf(values, ReadSize); }

Flags::Reader Integer(int* value, IntegerRange range) {
  return [value, range](const std::string& text) { return ReadInteger(text, range, value); };
}

Flags::Reader IntegerList(std::vector<int>* values, IntegerRange range) {
  return ListOf(values, [range](const std::string& text, int* value) { return ReadInteger(text, range, value); });
}

Flags::Reader Number(double* value) {
  return [value](const std::string& text) {
    double number = 0;
    if (!absl::SimpleAtod(text, &number) || !std::isfinite(number) || number < 0) return Expected("a number from 0 up");
    *value = number;
    return absl::OkStatus();
  };
}

Flags::Reader Duration(absl::Duration* value) {
  return [value](const std::string& text) { return ReadDuration(text, value); };
}

Flags::Reader DurationList(std::vector<absl::Duration>* values) { return ListOf(values, ReadDuration); }

Flags::Reader Text(std::string* value) {
  return [value](const std::string& text) {
    if (text.empty()) return Expected("a word");
    *value = text;
    return absl::OkStatus();
  };
}

Flags::Reader FileToWrite(std::string* value) {
  return [value](const std::string& text) {
    const std::filesystem::path file = text;
    std::error_code error;
    const bool is_in_folder = !file.has_parent_path() || std::filesystem::is_directory(file.parent_path(), error);
    if (!file.has_filename() || !is_in_folder || std::filesystem::is_directory(file, error)) {
      return Expected("the name of a file in a folder that exists");
    }
    *value = text;
    return absl::OkStatus();
  };
}

Flags::Reader Choice(std::string* value, std::vector<std::string> choices) {
  return [value, choices = std::move(choices)](const std::string& text) {
    if (!IsAmong(choices, text)) return Expected(absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
    *value = text;
    return absl::OkStatus();
  };
}

Flags::Reader ChoiceList(std::vector<std::string>* values, std::vector<std::string> choices) {
  return [values, choices = std::move(choices)](const std::string& text) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(std::vector<std::string> words, SplitList(text));
    if (text == "all") words = choices;
    for (const std::string& word : words) {
      if (!IsAmong(choices, word)) return Expected(absl::StrCat("all, or a list of ", absl::StrJoin(choices, ", ")));
    }
    *values = std::move(words);
    return absl::OkStatus();
  };
}

}  // namespace ronda::bench
