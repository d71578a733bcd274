// SPDX-License-Identifier: Apache-2.0

// The host and the process of this launcher.
#ifndef RONDA_PROGRAMS_OPTIONS_LOCAL_HOST_H_
#define RONDA_PROGRAMS_OPTIONS_LOCAL_HOST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ronda {

// The names and numeric addresses of this host.
std::vector<std::string> OwnAddresses();

// The number of cores that this process may run on.
int CountCores();

// The number of NVIDIA GPUs that the driver lists.
int CountGpus();

// A core, as the list of the system's numbers of its hardware threads.
using Core = std::vector<int>;

// The cores of a host that ranks may use, by memory node. Memory nodes without such cores are left out.
struct HostCores {
  std::vector<std::vector<Core>> nodes;
};

// The cores that this process may use, as hwloc finds them.
// Errors: INTERNAL if hwloc fails.
absl::StatusOr<HostCores> ThisHostsCores();

// Different ports of this host on which no program listens now; 0 if the system has none. Rank 0 will listen there a
// moment later. Until then the system gives these ports to no connection, if there are ports that it never gives to
// connections.
std::vector<int> FindFreePorts(int count);

// The path of this program; "rondarun" if the system does not tell.
std::string ProgramPath();

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_LOCAL_HOST_H_
