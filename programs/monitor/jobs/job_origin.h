// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_JOB_ORIGIN_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_JOB_ORIGIN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Returns the words of a process's command line ("cmdline"), or its environment variables ("environ"). Returns an empty
// list if the file cannot be read.
std::vector<std::string> WordsOf(pid_t pid, const char* file_name);

// Returns the pid of the rondarun that started the job of the process `rank`: its nearest ancestor that is a rondarun,
// but no agent. If there is none, returns the pid of the agent, whose rondarun is on another host. Otherwise returns 0.
pid_t LauncherOf(pid_t rank);

// Returns whether a rondarun with this command line is an agent, which another rondarun has started.
bool IsAgent(const std::vector<std::string>& words);

// Returns the job's name from the command line of an agent. Empty: the job has none.
std::string NameOfAgentsJob(const std::vector<std::string>& words);

// Where a job came from, as far as /proc on this host shows it.
struct JobOrigin {
  std::string name;     // the user's name for it (rondarun --name); empty: none
  std::string command;  // of its ranks, as a shell would read it, without characters that control a terminal
  pid_t launcher = 0;   // the rondarun above its ranks, which may be another host's agent; 0: none
  FlightTime started;   // the start of the launcher or, without one, of the rank
};

// Returns the origin of the job to which the process `rank` belongs. The job's name comes from the command line of
// rondarun or its agent, or from the configuration file that the command line names. So the monitor need not ask
// rondarun for the name, and the ranks' shared memory need not contain it.
JobOrigin OriginOf(pid_t rank);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_ORIGIN_H_
