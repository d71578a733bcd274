// SPDX-License-Identifier: Apache-2.0

// The reason why a command cannot be started, in one line that shows what to write instead.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_COMMAND_ERROR_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_COMMAND_ERROR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ronda {

// A command, and the words in front of it on the user's command line: "rondarun -np 2".
struct CommandWords {
  const std::vector<std::string>& command;
  const std::string& before;
};

// OK unless the command is a script that the system would start, but that could only fail with a misleading text. Such
// scripts are: one whose first line ends with a carriage return; and a Python program without a first line that names
// Python, which a shell would run.
// Errors: NOT_FOUND and PERMISSION_DENIED.
absl::Status CheckScript(const CommandWords& words);

// The error for a command for which exec has returned `error`, an errno.
// Errors: NOT_FOUND and PERMISSION_DENIED; the system's for all else.
absl::Status CommandError(const CommandWords& words, int error);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_COMMAND_ERROR_H_
