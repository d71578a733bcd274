// The command line of rondarun.
#ifndef RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_
#define RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/launch/argument_sources.h"
#include "runtime/launch/launch_options.h"

namespace ronda {

// Reads the words after the program's name. Options end at the first word that is none, or at "--"; the rest is the
// command. A repeated option replaces the earlier one, or adds to it (-x). --help, --version and --check-build end the
// reading. Options are horovodrun's, torchrun's, Paddle's and Ronda's own (docs/rondarun.md).
//
// `sources` is what else they can depend on: files they name, and this machine.
//
// Errors: INVALID_ARGUMENT that quotes the culprit and shows the right form.
absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words, const ArgumentSources& sources);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ARGUMENTS_H_
