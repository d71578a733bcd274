// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_OPTIONS_COMMAND_LINE_H_
#define RONDA_PROGRAMS_OPTIONS_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/options/option.h"

namespace ronda {

// An option from a command line or a configuration file, before it takes effect.
struct GivenOption {
  const Option* option = nullptr;
  OptionUse use;
  std::string where;  // "train.yaml:3: params.cycle-time-ms: "; empty on the command line

  // Applies the option. Errors: those of the option's effect, prefixed with `where`.
  absl::Status Apply() const;
};

// A command line: its options, and the words that follow them.
struct GivenWords {
  std::vector<GivenOption> options;
  std::vector<std::string> command;
};

// Two lists of mutually exclusive options: no option in `these` can be combined with an option in `those`. The lists
// refer to each option by its first name.
struct OptionConflict {
  std::vector<absl::string_view> these;
  std::vector<absl::string_view> those;
  absl::string_view remedy;
};

// The options of a program. The table parses command lines, and formats the --help text.
//
// Immutable, and so thread-safe. The effects of the options write to variables of the program, which must outlive any
// use of the table.
class OptionTable {
 public:
  explicit OptionTable(std::vector<Option> options, std::vector<OptionConflict> conflicts = {})
      : options_(std::move(options)), conflicts_(std::move(conflicts)) {}

  // Not copyable, because each GivenOption points into its table.
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // Returns the options in the order of the --help text.
  const std::vector<Option>& options() const { return options_; }

  // Returns the option named `name`, or nullptr. "_" and "-" are equivalent in long names, as in torchrun and Paddle.
  const Option* Find(absl::string_view name) const;

  // Returns INVALID_ARGUMENT, with a text that quotes `name` and suggests the most similar option, if any.
  absl::Status Unknown(absl::string_view name) const;

  // Parses options up to "--", or to the first word that is not an option. The remaining words are the command. Parsing
  // stops after an option of kind kQuestion. Errors: INVALID_ARGUMENT for unknown options, missing values and
  // superfluous values.
  absl::StatusOr<GivenWords> Read(const std::vector<std::string>& words) const;

  // Returns OK if no two options in `given` conflict. Errors: INVALID_ARGUMENT, with a text that names both options and
  // the remedy.
  absl::Status CheckAgreement(const std::vector<GivenOption>& given) const;

  // Returns the options of `file` that no option of `command_line` replaces or contradicts.
  std::vector<GivenOption> NotOverridden(const std::vector<GivenOption>& file,
                                         const std::vector<GivenOption>& command_line) const;

  // Returns the part of the --help text that describes the options. It has sections, in the order of their first
  // options, and shows the names, value and help of each option. The names of options without effect are listed at the
  // end. Refused options are omitted.
  std::string Describe() const;

 private:
  const OptionConflict* FindConflict(const Option& a, const Option& b) const;
  absl::StatusOr<GivenOption> ReadOption(const std::vector<std::string>& words, size_t* next) const;
  absl::Status ReadValue(const std::vector<std::string>& words, size_t* next, GivenOption* given) const;
  std::string SplitOff(absl::string_view name) const;
  std::string ListWithoutEffect() const;

  const std::vector<Option> options_;
  const std::vector<OptionConflict> conflicts_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_COMMAND_LINE_H_
