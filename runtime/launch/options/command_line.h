#ifndef RONDA_RUNTIME_LAUNCH_OPTIONS_COMMAND_LINE_H_
#define RONDA_RUNTIME_LAUNCH_OPTIONS_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/launch/options/option.h"

namespace ronda {

// An option that a command line or a configuration file gives, before it takes effect.
struct GivenOption {
  const Option* option = nullptr;
  OptionUse use;
  std::string where;  // "train.yaml:3: params.cycle-time-ms: "; empty on the command line

  // Errors: those of the option's effect, with `where` in front.
  absl::Status Apply() const;
};

// A command line: options, and the words behind them.
struct GivenWords {
  std::vector<GivenOption> options;
  std::vector<std::string> command;
};

// Options that do not go together, by the first of their names: each of `these` with each of `those`.
struct OptionConflict {
  std::vector<absl::string_view> these;
  std::vector<absl::string_view> those;
  absl::string_view remedy;
};

// The options of one program. Reading and explaining command lines derive from this table.
//
// Immutable, so thread-safe. Effects write to variables of the program, which must outlive their use.
class OptionTable {
 public:
  explicit OptionTable(std::vector<Option> options, std::vector<OptionConflict> conflicts = {})
      : options_(std::move(options)), conflicts_(std::move(conflicts)) {}

  // Options that are given point into the table.
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // In the order of --help.
  const std::vector<Option>& options() const { return options_; }

  // The option of that name, or nullptr. In long names "_" and "-" are the same, as in torchrun's and Paddle's.
  const Option* Find(absl::string_view name) const;

  // INVALID_ARGUMENT that quotes `name`, with the name it most resembles if there is one.
  absl::Status Unknown(absl::string_view name) const;

  // Reads options up to "--" or the first word that is no option; the rest is the command. A question ends the reading,
  // and is the last of the options.
  // Errors: INVALID_ARGUMENT for unknown options, and for values that are missing or too many.
  absl::StatusOr<GivenWords> Read(const std::vector<std::string>& words) const;

  // OK if no two of `given` are in conflict.
  // Errors: INVALID_ARGUMENT that names both, and the remedy.
  absl::Status CheckAgreement(const std::vector<GivenOption>& given) const;

  // Those of `file` that nothing on the `command_line` replaces or contradicts.
  std::vector<GivenOption> NotOverridden(const std::vector<GivenOption>& file,
                                         const std::vector<GivenOption>& command_line) const;

  // The text of --help about the options: sections in the order of their first options, with every name, its value
  // and its help; then the names of options without effect. Options that are refused are left out.
  std::string Describe() const;

 private:
  const OptionConflict* FindConflict(const Option& a, const Option& b) const;
  absl::StatusOr<GivenOption> ReadOption(const std::vector<std::string>& words, size_t* next) const;
  absl::Status TakeValue(const std::vector<std::string>& words, size_t* next, GivenOption* given) const;
  std::string SplitOff(absl::string_view name) const;
  std::string ListWithoutEffect() const;

  const std::vector<Option> options_;
  const std::vector<OptionConflict> conflicts_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTIONS_COMMAND_LINE_H_
