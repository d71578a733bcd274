// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDACTL_TOP_H_
#define RONDA_PROGRAMS_RONDACTL_TOP_H_

#include <string>

#include "absl/status/status.h"

namespace ronda {

enum class TopTables { kMany, kOne };

// Shows the ranks of `job`, starting with the ranks that the others wait for longest. On a terminal, draws a new screen
// every second, until the user presses q or Ctrl-C, or the job ends. Otherwise, prints a table every second until the
// job ends. With kOne, prints a single table after one second.
//
// Blocks the signals that would end the process. REQUIRES: the process is single-threaded. Errors: system errors.
absl::Status ShowTop(const std::string& job, TopTables tables);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDACTL_TOP_H_
