#ifndef RONDA_BENCH_MACHINE_H_
#define RONDA_BENCH_MACHINE_H_

#include <string>

namespace ronda::bench {

// Where something was measured.
struct Machine {
  std::string cpu;        // "AMD EPYC 9B14"; "unknown" if the system does not say
  int cores = 0;          // that the system grants, however many of them a launcher has bound this process to
  double memory_gib = 0;  // installed
  std::string kernel;     // "Linux 6.1.0"
};

// This machine.
Machine DescribeMachine();

// The time in UTC, "2026-11-21T19:30:00Z".
std::string NowInUtc();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_MACHINE_H_
