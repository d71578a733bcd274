// SPDX-License-Identifier: Apache-2.0

// Parses and explains the command line of rondarun.
#ifndef RONDA_PROGRAMS_OPTIONS_ARGUMENTS_H_
#define RONDA_PROGRAMS_OPTIONS_ARGUMENTS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/options/launch_options.h"

namespace ronda {

// What determines the meaning of a command line besides its words: files that it names, this machine, and the
// environment.
struct ArgumentSources {
  // Returns the content of a file. Errors: NOT_FOUND or similar, "PATH: REASON".
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  std::function<int()> count_cores;                         // that this process may run on
  std::function<int()> count_gpus;                          // NVIDIA's, as its driver lists them
  std::function<std::vector<std::string>()> own_addresses;  // names and numeric addresses of this host
  std::function<std::optional<std::string>(const std::string& name)> variable;  // of the environment
  std::function<std::vector<std::string>()> variables;                          // all of it, "NAME=value"

  // Returns functions that read from the real machine and process.
  static ArgumentSources OfThisProcess();
};

// Parses the words after the program name. The options end at "--", or before the first word that is not an option. The
// remaining words are the user's command. If an option is repeated, the last use replaces earlier ones, except that the
// uses of some options, such as -x, add up. Parsing stops at --help, --version or --check-build. The options are those
// of horovodrun, torchrun and Paddle, and Ronda's own (docs/rondarun.md). If an option is given neither in `words` nor
// in files that they name, Horovod's environment variable for it is used.
//
// Errors: INVALID_ARGUMENT, with a text that quotes the wrong word and shows the expected form.
absl::StatusOr<LaunchOptions> ParseArguments(const std::vector<std::string>& words, const ArgumentSources& sources);

// What a command line of rondarun says about its job. A field is empty if the command line does not say it.
struct JobWords {
  std::string name;
  std::vector<std::string> command;
};

// Returns what the words after the program name say about the job. Unlike ParseArguments(), works without the
// environment of the rondarun that has these words, and without the files that they name, except that the name may
// come from a configuration file.
JobWords FindJobWords(const std::vector<std::string>& words,
                      const std::function<absl::StatusOr<std::string>(const std::string& path)>& read_file);

// Returns a line that shows how to call rondarun.
std::string UsageLine();

// Returns the --help text.
std::string HelpText();

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_ARGUMENTS_H_
