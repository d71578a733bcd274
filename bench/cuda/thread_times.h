// CPU time of single threads of this process, of user and system together.
#ifndef RONDA_BENCH_CUDA_THREAD_TIMES_H_
#define RONDA_BENCH_CUDA_THREAD_TIMES_H_

#include <sys/types.h>

#include <vector>

#include "absl/time/time.h"

namespace ronda::bench {

// The threads that there are, ascending.
std::vector<pid_t> Threads();

// What a thread has used since it began, to the nanosecond and up to now, also while it runs on another core. Zero if
// it has ended.
absl::Duration CpuTimeOf(pid_t thread);

absl::Duration CpuTimeOfThisThread();

// Also of threads that have ended.
absl::Duration CpuTimeOfProcess();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_CUDA_THREAD_TIMES_H_
