// SPDX-License-Identifier: Apache-2.0

// Reads and explains the command line of rondarun.
#ifndef RONDA_PROGRAMS_OPTIONS_ARGUMENTS_H_
#define RONDA_PROGRAMS_OPTIONS_ARGUMENTS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/options/launch_options.h"

namespace ronda {

// The meaning of a command line also depends on these sources: files that it names, this machine, and the environment.
struct ArgumentSources {
  // Returns the content of a file. Errors: NOT_FOUND or similar, with the reason but without the file's name.
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  std::function<int()> count_cores;                         // that this process may run on
  std::function<int()> count_gpus;                          // NVIDIA's, as its driver lists them
  std::function<std::vector<std::string>()> own_addresses;  // names and numeric addresses of this host
  std::function<std::optional<std::string>(const std::string& name)> variable;  // of the environment
  std::function<std::vector<std::string>()> variables;                          // all of it, "NAME=value"

  // Returns functions that read the real sources of this machine and process.
  static ArgumentSources OfThisProcess();
};

// Reads the words after the program's name. The options end before the first word that is no option, or at "--". The
// remaining words are the command. If an option is repeated, the last use replaces the earlier uses, except that the
// uses of some options (such as -x) add up. Reading stops at --help, --version or --check-build. The options are those
// of horovodrun, torchrun and Paddle, and Ronda's own (docs/rondarun.md). If an option is neither in `words` nor in the
// files that they name, Horovod's environment variable for this option is used.
//
// Errors: INVALID_ARGUMENT that quotes the wrong word and shows the right form.
absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words, const ArgumentSources& sources);

// Returns one line that shows how to call rondarun.
std::string UsageLine();

// Returns the text of --help.
std::string HelpText();

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_ARGUMENTS_H_
