// SPDX-License-Identifier: Apache-2.0

// Errors that say in one line why a command cannot be started, and what the user should write instead.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_COMMAND_ERROR_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_COMMAND_ERROR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ronda {

// A command, and the words that precede it on the user's command line, such as "rondarun -np 2".
struct CommandWords {
  const std::vector<std::string>& command;
  const std::string& before;
};

// Returns an error for a script that the system would start, but that would fail with a misleading message. One example
// is a script whose first line ends with a carriage return. Another is a Python program that a shell would run, because
// its first line does not name Python. Errors: NOT_FOUND and PERMISSION_DENIED.
absl::Status CheckScript(const CommandWords& words);

// Returns the error for a command that exec could not start. `error` is the errno of exec. Errors: NOT_FOUND and
// PERMISSION_DENIED; otherwise those of the operating system.
absl::Status CommandError(const CommandWords& words, int error);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_COMMAND_ERROR_H_
