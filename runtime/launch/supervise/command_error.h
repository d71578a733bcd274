// Why a command cannot be started, in a line that says what to write instead.
#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_COMMAND_ERROR_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_COMMAND_ERROR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ronda {

// A command, and the words in front of it on the user's command line: "rondarun -np 2".
struct CommandWords {
  const std::vector<std::string>& command;
  const std::string& before;
};

// Whether the command is a script that the system would start, and that could only fail with a text that leads astray:
// one whose first line ends with a carriage return, or a program in Python without a first line that says so, which a
// shell would run.
// Errors: NOT_FOUND and PERMISSION_DENIED.
absl::Status CheckScript(const CommandWords& words);

// The error for a command of which exec has said `error`, an errno.
// Errors: NOT_FOUND and PERMISSION_DENIED; the system's for all else.
absl::Status CommandError(const CommandWords& words, int error);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_COMMAND_ERROR_H_
