// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_PROCESS_TIMES_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_PROCESS_TIMES_H_

#include <sys/types.h>

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// What the kernel knows about a process: its state (see ProcessStat), and the summed times of its threads.
struct ProcessTimes {
  char state = 0;
  absl::Duration running;  // on a core
  absl::Duration waiting;  // ready to run, without a core
};

// Returns the first two numbers of a schedstat file, in nanoseconds, or nullopt if `text` is not the content of such a
// file.
std::optional<ProcessTimes> ParseSchedstat(absl::string_view text);

// Reads the times of process `pid`. Returns nullopt if the process does not exist. If /proc has no schedstat files, the
// times are zero.
std::optional<ProcessTimes> ReadProcessTimes(pid_t pid);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_PROCESS_TIMES_H_
