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

// Returns OK unless the command is a script that the system would start, but that could only fail with a misleading
// text. One such script has a first line that ends with a carriage return. Another is a Python program whose first line
// does not name Python, so that a shell would run it.
// Errors: NOT_FOUND and PERMISSION_DENIED.
absl::Status CheckScript(const CommandWords& words);

// Returns the error for a command that exec could not start. `error` is the errno.
// Errors: NOT_FOUND and PERMISSION_DENIED; the operating system's errors for all else.
absl::Status CommandError(const CommandWords& words, int error);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_COMMAND_ERROR_H_
