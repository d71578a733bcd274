// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_ARGUMENTS_H_
#define RONDA_BENCH_HARNESS_ARGUMENTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/option.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {

// The options of one subcommand and its --help text. Parsing is done by OptionTable (programs/options). Each option
// sets a variable. Every option but --help and -h takes a value, as "--name value" or "--name=value". If an option is
// repeated, the last value wins. The variables must outlive the Flags; they keep their initial values as defaults until
// an option sets them.
//
//   CollectivesOptions options;
//   Flags flags("collectives", "Times collective operations.");
//   flags.Add({.names = {"-b", "--min-bytes"}, .value = "SIZE", .help = "Smallest message."},
//             Size(&options.min_bytes));
//   absl::Status status = flags.Parse(words);
//
// Thread-compatible.
class Flags {
 public:
  // Reads the value of an option. Errors: INVALID_ARGUMENT with the expected form ("a size such as 64KiB").
  using Reader = std::function<absl::Status(const std::string& value)>;

  struct Flag {
    std::vector<absl::string_view> names;  // "-b", "--min-bytes"
    absl::string_view value;               // the value's name in --help
    std::string help;                      // may have several lines
  };

  Flags(std::string command, std::string description);

  void Add(Flag flag, Reader reader);

  // Errors: INVALID_ARGUMENT, with a text that quotes the wrong argument and shows the right form. An argument that is
  // not an option is an error, unless AllowOperands() was called.
  absl::Status Parse(const std::vector<std::string>& words);

  // Makes Parse() append arguments that are not options to `operands`. --help shows them as `name`.
  void AllowOperands(std::string name, std::vector<std::string>* operands);

  bool help_requested() const { return help_requested_; }
  std::string Usage() const;
  std::string Help() const;

 private:
  std::string command_;
  std::string description_;
  std::vector<Option> options_;
  std::string operand_name_;
  std::vector<std::string>* operands_ = nullptr;
  bool help_requested_ = false;
};

// Parses a size such as "4", "64KiB" or "256M". K, M and G are powers of 1,024; iB or B may follow them. Errors:
// INVALID_ARGUMENT.
absl::StatusOr<size_t> ParseSize(absl::string_view text);

// Returns the parts of a comma-separated list. Errors: INVALID_ARGUMENT if a part is empty.
absl::StatusOr<std::vector<std::string>> SplitList(absl::string_view text);

struct IntegerRange {
  int64_t min = 0;
  int64_t max = int64_t{1} << 30;
};

// Return Readers that write to the given variable.
Flags::Reader Size(size_t* value);
Flags::Reader SizeList(std::vector<size_t>* values);
Flags::Reader Integer(int* value, IntegerRange range);
Flags::Reader IntegerList(std::vector<int>* values, IntegerRange range);
Flags::Reader Number(double* value);            // finite and not negative
Flags::Reader Duration(absl::Duration* value);  // "0", "100ms"; not negative
Flags::Reader DurationList(std::vector<absl::Duration>* values);
Flags::Reader Text(std::string* value);
Flags::Reader FileToWrite(std::string* value);  // the name of a file in a folder that exists
// Choice reads one of `choices`. ChoiceList reads a list of them; "all" stands for the list of all choices.
Flags::Reader Choice(std::string* value, std::vector<std::string> choices);
Flags::Reader ChoiceList(std::vector<std::string>* values, std::vector<std::string> choices);

// Like Choice and ChoiceList, for types whose values have names. Name(value), which is declared next to the type,
// returns the name of a value.
template <typename T>
std::vector<std::string> NamesOf(const std::vector<T>& values) {
  std::vector<std::string> names;
  for (const T& value : values) names.emplace_back(Name(value));
  return names;
}

template <typename T>
Flags::Reader NamedList(std::vector<T>* values, std::vector<T> choices) {
  return [values, choices = std::move(choices)](const std::string& text) {
    const std::vector<std::string> names = NamesOf(choices);
    std::vector<std::string> words;
    RONDA_RETURN_IF_ERROR(ChoiceList(&words, names)(text));
    values->clear();
    for (const std::string& word : words) {
      values->push_back(choices[static_cast<size_t>(std::find(names.begin(), names.end(), word) - names.begin())]);
    }
    return absl::OkStatus();
  };
}

template <typename T>
Flags::Reader Named(T* value, std::vector<T> choices) {
  return [value, choices = std::move(choices)](const std::string& text) {
    std::string word;
    RONDA_RETURN_IF_ERROR(Choice(&word, NamesOf(choices))(text));
    std::vector<T> read;
    RONDA_RETURN_IF_ERROR(NamedList(&read, choices)(word));
    *value = read.front();
    return absl::OkStatus();
  };
}

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_ARGUMENTS_H_
