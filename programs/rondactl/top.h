// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDACTL_TOP_H_
#define RONDA_PROGRAMS_RONDACTL_TOP_H_

#include <string>

#include "absl/status/status.h"

namespace ronda {

enum class TopTables { kMany, kOne };

// Shows the ranks of `job`. The ranks for which the others wait longest are at the top. On a terminal the
// function shows a new screen every second, until q, Ctrl-C or the end of the job. If the output is not a terminal,
// prints a table every second, until the end of the job. With kOne, prints one table after one second.
//
// Blocks the signals that would end the process. REQUIRES: the process has one thread.
// Errors: the operating system's errors.
absl::Status ShowTop(const std::string& job, TopTables tables);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDACTL_TOP_H_
