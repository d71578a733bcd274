#ifndef RONDA_RUNTIME_MONITOR_PROCESS_H_
#define RONDA_RUNTIME_MONITOR_PROCESS_H_

#include <sys/types.h>

#include <cstdint>

namespace ronda {

// A process of this host. The start time (clock ticks since boot) tells it from a later process with the same pid;
// it is 0 where /proc is not there to tell.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;
};

// The calling process.
ProcessId ThisProcess();

// Whether `process` has not ended; one that ended and was not yet reaped by its parent has.
bool IsAlive(const ProcessId& process);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_PROCESS_H_
