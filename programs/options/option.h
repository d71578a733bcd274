// SPDX-License-Identifier: Apache-2.0

// Describes the options of a command line: their names, values and effects.
//
// A program declares its options as a list of Option objects, whose effects write to the program's variables, and
// parses command lines with an OptionTable (command_line.h):
//
//   Settings settings;
//   OptionTable table({MakeOption("-n --count N", "How many.", IntegerInto(&settings.count, kCount)),
//                      MakeOption("--verbose", "Say more.", Assign(&settings.verbose, true))});
//
// All functions are thread-safe, and return immutable objects.
#ifndef RONDA_PROGRAMS_OPTIONS_OPTION_H_
#define RONDA_PROGRAMS_OPTIONS_OPTION_H_

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace ronda {

// One use of an option, as the user wrote it.
struct OptionUse {
  // The origin matters for secrets: other users of the machine can read a command line, but may not be able to read a
  // file.
  enum class Origin { kCommandLine, kFile };

  std::string name;   // "-np"
  std::string value;  // empty for options that take none, or got none
  Origin origin = Origin::kCommandLine;
};

// Applies an option. Errors: INVALID_ARGUMENT, with a text that names the option and shows the expected form.
using OptionEffect = std::function<absl::Status(const OptionUse& use)>;

// An option of a program.
struct Option {
  // The kinds of options, except the normal kind:
  //   kQuestion       answered at once, before later options are read
  //   kWithoutEffect  an option of another program that is accepted but changes nothing
  //   kRefused        an option of another program; giving it is an error, whose text names the remedy
  enum class Kind { kNormal, kQuestion, kWithoutEffect, kRefused };
  // Whether a second use of the option replaces the first, or adds to it.
  enum class Repetition { kReplaces, kAdds };
  // The form of the value:
  //   kNoOption  any word that is not an option's name, so that the next option is never taken for a missing value
  //   kAnyWords  words for another program
  //   kOptional  given as --option=VALUE, or not at all
  //   kTwo       two words, joined by a blank
  enum class Value { kNoOption, kAnyWords, kOptional, kTwo };

  std::vector<absl::string_view> names;  // messages use the first one
  absl::string_view value_name;          // empty: takes no value
  std::string help;                      // may have several lines
  OptionEffect effect;
  Kind kind = Kind::kNormal;
  Repetition repetition = Repetition::kReplaces;
  Value value = Value::kNoOption;
  absl::string_view section = {};  // its title in --help; set by OptionTable's user
};

// `spec` consists of the option's names and the name of its value, as in "-n --count N". `spec` must outlive the
// option.
Option MakeOption(absl::string_view spec, std::string help, OptionEffect effect);

// The forms that an option's value may take. If a value is wrong, the Parse functions return INVALID_ARGUMENT, with a
// text that quotes the value and shows the expected form.

// Returns INVALID_ARGUMENT, with a text that quotes the value and names valid values. `expected` completes a sentence
// that starts "-np takes ".
absl::Status BadValue(const OptionUse& use, absl::string_view expected);

// The form of a value that is a number from `min` to `max`.
struct NumberForm {
  enum class Digits { kWhole, kAny };

  absl::string_view what;     // "a number of seconds"
  absl::string_view example;  // "10"
  double min = 0;
  double max = 0;
  Digits digits = Digits::kWhole;
};

absl::StatusOr<double> ParseNumber(const OptionUse& use, const NumberForm& form);

// Parses a whole number, like ParseNumber. REQUIRES: all numbers in the form's range fit into an `int`.
absl::StatusOr<int> ParseInteger(const OptionUse& use, const NumberForm& form);

// The form of a port number that a program may listen on.
inline constexpr NumberForm kPortForm = {.what = "a port", .example = "29500", .min = 1, .max = 65535};

// A text that must not be empty.
struct TextForm {
  absl::string_view what;     // "a file"
  absl::string_view example;  // "tuning.csv"
};

absl::StatusOr<std::string> ParseText(const OptionUse& use, const TextForm& form);

// Parses a comma-separated list without empty elements.
absl::StatusOr<std::vector<std::string>> ParseList(const OptionUse& use, const TextForm& form);

// The words that an option accepts, and what each word means. Words are case-insensitive. Errors show the first word as
// an example.
template <typename Meaning>
using WordForm = std::vector<std::pair<absl::string_view, Meaning>>;

// Returns the index of the option's value in `words`.
absl::StatusOr<size_t> ParseChoice(const OptionUse& use, const std::vector<absl::string_view>& words);

template <typename Meaning>
absl::StatusOr<Meaning> ParseWord(const OptionUse& use, const WordForm<Meaning>& form) {
  std::vector<absl::string_view> words;
  for (const auto& [word, meaning] : form) words.push_back(word);
  RONDA_ASSIGN_OR_RETURN(const size_t position, ParseChoice(use, words));
  return form[position].second;
}

// Effects that write to a variable, which must outlive the option.

template <typename T>
OptionEffect Assign(T* place, std::type_identity_t<T> value) {
  return [place, value](const OptionUse&) {
    *place = value;
    return absl::OkStatus();
  };
}

// `*place` may be a std::optional.
template <typename T>
OptionEffect IntegerInto(T* place, NumberForm form) {
  return [place, form](const OptionUse& use) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(*place, ParseInteger(use, form));
    return absl::OkStatus();
  };
}

template <typename T>
OptionEffect WordInto(T* place, WordForm<std::type_identity_t<T>> form) {
  return [place, form](const OptionUse& use) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(*place, ParseWord(use, form));
    return absl::OkStatus();
  };
}

OptionEffect TextInto(std::string* place, TextForm form);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_OPTION_H_
