#ifndef RONDA_BENCH_STARTUP_STARTUP_COMMAND_H_
#define RONDA_BENCH_STARTUP_STARTUP_COMMAND_H_

#include "bench/command.h"

namespace ronda::bench {

// ronda-bench startup: from the launcher's start to the end of the first allreduce, beside bare MPI.
Command StartupCommand();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STARTUP_STARTUP_COMMAND_H_
