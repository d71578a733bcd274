// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDACTL_TOP_H_
#define RONDA_PROGRAMS_RONDACTL_TOP_H_

#include <string>

#include "absl/status/status.h"

namespace ronda {

enum class TopTables { kMany, kOne };

// Shows the ranks of `job`. The ranks that cost the others most are at the top. On a terminal it shows a new screen
// every second, until q, Ctrl-C or the end of the job. Elsewhere it prints a table every second, until the end of the
// job. kOne: prints one table after one second.
//
// Blocks the signals that end it. REQUIRES: the process has one thread.
// Errors: the operating system's errors.
absl::Status ShowTop(const std::string& job, TopTables tables);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDACTL_TOP_H_
