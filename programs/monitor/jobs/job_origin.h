// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_JOB_ORIGIN_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_JOB_ORIGIN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The words of a process' command line ("cmdline"), or its variables ("environ"). None if they cannot be read.
std::vector<std::string> WordsOf(pid_t pid, const char* file_name);

// Whether a process with these words is a rondarun, or the agent of a rondarun on another host.
bool IsRondarun(const std::vector<std::string>& words);
bool IsAgent(const std::vector<std::string>& words);

// The origin of a job, as far as /proc shows it on this host.
struct JobOrigin {
  std::string name;     // the user's name for it (rondarun --name); empty: none
  std::string command;  // of its ranks, as a shell would read it, without characters that control a terminal
  pid_t launcher = 0;   // the rondarun above its ranks, which may be another host's agent; 0: none
  FlightTime started;   // the start of the launcher or, without one, of the rank
};

// The origin of the job of the process `rank`. The name comes from rondarun's or its agent's command line. So nothing
// needs to ask rondarun, and the ranks' shared memory does not contain the name.
JobOrigin OriginOf(pid_t rank);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_ORIGIN_H_
