#ifndef RONDA_BENCH_LATENCY_LATENCY_COMMAND_H_
#define RONDA_BENCH_LATENCY_LATENCY_COMMAND_H_

#include "bench/command.h"

namespace ronda::bench {

// ronda-bench latency: one small allreduce through the whole client path, call by call, and what an idle job costs.
Command LatencyCommand();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_LATENCY_LATENCY_COMMAND_H_
