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

  // Carries out the option's effect. Errors: the errors of the effect, with `where` in front.
  absl::Status Apply() const;
};

// A command line: options, and the words after them.
struct GivenWords {
  std::vector<GivenOption> options;
  std::vector<std::string> command;
};

// Two lists of options that exclude each other: an option of `these` cannot be given together with an option of
// `those`. Each list names an option by its first name.
struct OptionConflict {
  std::vector<absl::string_view> these;
  std::vector<absl::string_view> those;
  absl::string_view remedy;
};

// The options of one program. The table reads command lines, and makes the text of --help.
//
// The class is immutable, and so thread-safe. The effects of the options write to variables of the program, which must
// outlive the use of the table.
class OptionTable {
 public:
  explicit OptionTable(std::vector<Option> options, std::vector<OptionConflict> conflicts = {})
      : options_(std::move(options)), conflicts_(std::move(conflicts)) {}

  // An OptionTable cannot be copied, because each GivenOption points into its table.
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // Returns the options, in the order of --help.
  const std::vector<Option>& options() const { return options_; }

  // Returns the option with the name `name`, or nullptr. "_" and "-" mean the same in long names, as in torchrun and
  // Paddle.
  const Option* Find(absl::string_view name) const;

  // Returns INVALID_ARGUMENT that quotes `name`, and names the most similar option, if any.
  absl::Status Unknown(absl::string_view name) const;

  // Reads options up to "--" or to the first word that is no option. The remaining words are the command. If an option
  // is a question (kQuestion), it is the last option that is read.
  // Errors: INVALID_ARGUMENT for unknown options, and for missing or superfluous values.
  absl::StatusOr<GivenWords> Read(const std::vector<std::string>& words) const;

  // Returns OK if no two options in `given` are in conflict.
  // Errors: INVALID_ARGUMENT that names both options, and the remedy.
  absl::Status CheckAgreement(const std::vector<GivenOption>& given) const;

  // Returns the options of `file` that no option of the `command_line` replaces or contradicts.
  std::vector<GivenOption> NotOverridden(const std::vector<GivenOption>& file,
                                         const std::vector<GivenOption>& command_line) const;

  // Returns the part of --help about the options. The text has sections, in the order of their first options, and shows
  // each option's names, value and help. After the sections, the text lists the names of options without effect.
  // Refused options are left out.
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
