// The options that a command line or a configuration file gives, before they take effect.
#ifndef RONDA_RUNTIME_LAUNCH_GIVEN_OPTIONS_H_
#define RONDA_RUNTIME_LAUNCH_GIVEN_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/launch/option.h"
#include "runtime/launch/option_value.h"

namespace ronda {

struct GivenOption {
  const Option* option = nullptr;
  OptionUse use;
  std::string where;  // "train.yaml:3: params.cycle-time-ms: "; empty on the command line
};

// A command line: options, and the command behind them.
struct GivenWords {
  std::vector<GivenOption> options;
  std::vector<std::string> command;
};

// Tells options from values and from the command. A question (OptionGroup::kQuestions) ends the reading, and is the
// last of the options.
// Errors: INVALID_ARGUMENT for unknown options, and for values that are missing or too many.
absl::StatusOr<GivenWords> ReadWords(const std::vector<std::string>& words);

// OK if none of `given` says what another one says otherwise.
// Errors: INVALID_ARGUMENT that names both, and what to write.
absl::Status CheckAgreement(const std::vector<GivenOption>& given);

// Those of `file` that nothing on the `command_line` replaces or contradicts.
std::vector<GivenOption> NotOverridden(const std::vector<GivenOption>& file,
                                       const std::vector<GivenOption>& command_line);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_GIVEN_OPTIONS_H_
