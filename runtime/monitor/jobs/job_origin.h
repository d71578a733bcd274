#ifndef RONDA_RUNTIME_MONITOR_JOBS_JOB_ORIGIN_H_
#define RONDA_RUNTIME_MONITOR_JOBS_JOB_ORIGIN_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Of a process: the words of its command line ("cmdline"), or its variables ("environ"); none if they cannot be read.
std::vector<std::string> WordsOf(pid_t pid, const char* file_name);

// Whether a process with these words is a rondarun.
bool IsRondarun(const std::vector<std::string>& words);

// Where a job comes from, as far as /proc tells on this host.
struct JobOrigin {
  std::string name;     // that the user has given it (rondarun --name); empty: none
  std::string command;  // of its ranks, as a shell would read it, with no characters that a terminal would obey
  pid_t launcher = 0;   // the rondarun above its ranks, which may be an agent of another host's; 0: there is none
  FlightTime started;   // the launcher; without one, the rank
};

// That of the job that has the process `rank`. Only its command line says the name: `rondarun` need not be asked, and
// the words in memory that the ranks share need no place for it.
JobOrigin OriginOf(pid_t rank);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_JOB_ORIGIN_H_
