#ifndef RONDA_RUNTIME_LAUNCH_BINDING_H_
#define RONDA_RUNTIME_LAUNCH_BINDING_H_

#include <vector>

#include "runtime/launch/launch_options.h"

namespace ronda {

// A core: the numbers that the system gives its hardware threads.
using Core = std::vector<int>;

// The cores of this host that ranks may run on, by memory node; nodes without any are left out.
struct HostCores {
  std::vector<std::vector<Core>> nodes;
};

// The hardware threads that a rank may run on, by their numbers in the system; empty: all.
//
// kCore: one core each, in the order of the memory nodes; where ranks outnumber cores they begin again at the first.
// kNuma: those of one memory node; neighbouring ranks share one, and every node gets the same number of ranks, give or
// take one.
//
// REQUIRES: 0 <= local_rank < local_size.
std::vector<int> CpusOfRank(const HostCores& cores, LaunchOptions::Binding binding, int local_rank, int local_size);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_BINDING_H_
