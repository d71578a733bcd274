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

// The sources on which a command line can depend in addition to its words: files that it names, and this machine.
struct ArgumentSources {
  // The content of a file. Errors: NOT_FOUND or similar, with the reason but without the file's name.
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  std::function<int()> count_cores;                         // that this process may run on
  std::function<int()> count_gpus;                          // NVIDIA's, as its driver lists them
  std::function<std::vector<std::string>()> own_addresses;  // names and numeric addresses of this host
  std::function<std::optional<std::string>(const std::string& name)> variable;  // of the environment
  std::function<std::vector<std::string>()> variables;                          // all of it, "NAME=value"

  // The sources of this machine and process.
  static ArgumentSources OfThisProcess();
};

// Reads the words after the program's name. The options end before the first word that is no option, or at "--". The
// remaining words are the command. A repeated option replaces the earlier one, or adds to it (-x). Reading stops at
// --help, --version or --check-build. Options are horovodrun's, torchrun's, Paddle's and Ronda's own
// (docs/rondarun.md). If neither the words nor the files that they name contain an option, Horovod's environment
// variable for that option applies.
//
// Errors: INVALID_ARGUMENT that quotes the culprit and shows the right form.
absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words, const ArgumentSources& sources);

// One line that shows how to call rondarun.
std::string UsageLine();

// The text of --help.
std::string HelpText();

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_ARGUMENTS_H_
