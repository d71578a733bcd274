// The command line of rondarun.
#ifndef RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_
#define RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/launch/launch_options.h"

namespace ronda {

// The most ranks that one rondarun starts: beyond it, a typing error is likelier than a machine of that size.
inline constexpr int kMaxRanks = 1024;

// Reads the words after the program's name. Options end at the first word that is none, or at "--"; the rest is the
// command. A repeated option replaces the earlier one. --help, --version and --check-build end the reading.
//
// Errors: INVALID_ARGUMENT that quotes the culprit and shows the right form.
absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words);

// One line: how to call rondarun.
std::string UsageLine();

// The text of --help.
std::string HelpText();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_
