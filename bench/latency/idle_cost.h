#ifndef RONDA_BENCH_LATENCY_IDLE_COST_H_
#define RONDA_BENCH_LATENCY_IDLE_COST_H_

#include <cstdint>

#include "absl/time/time.h"

namespace ronda::bench {

// What this process, with all of its threads, has cost while the calling thread slept.
struct IdleCost {
  double cpu_microseconds = 0;
  int64_t context_switches = 0;
};

IdleCost MeasureIdleCost(absl::Duration duration);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_LATENCY_IDLE_COST_H_
