// The host and the process of this launcher.
#ifndef RONDA_RUNTIME_LAUNCH_OPTIONS_LOCAL_HOST_H_
#define RONDA_RUNTIME_LAUNCH_OPTIONS_LOCAL_HOST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ronda {

// The names and numeric addresses of this host.
std::vector<std::string> OwnAddresses();

// The cores that this process may run on.
int CountCores();

// NVIDIA's GPUs, as the driver lists them.
int CountGpus();

// A core: the numbers that the system gives its hardware threads.
using Core = std::vector<int>;

// The cores of a host that ranks may run on, by memory node; nodes without any are left out.
struct HostCores {
  std::vector<std::vector<Core>> nodes;
};

// The cores that this process may run on, as hwloc finds them.
// Errors: INTERNAL if it cannot.
absl::StatusOr<HostCores> ThisHostsCores();

// Different ports of this host on which no program listens now; 0 where the system has none. Rank 0 will, a moment
// later. Until then no connection takes them, where the system leaves ports below those that it gives to connections.
std::vector<int> FindFreePorts(int count);

// The path of this program; "rondarun" if the system does not tell.
std::string ProgramPath();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTIONS_LOCAL_HOST_H_
