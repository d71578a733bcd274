// SPDX-License-Identifier: Apache-2.0

// Functions about the host and the process of this launcher.
#ifndef RONDA_PROGRAMS_OPTIONS_LOCAL_HOST_H_
#define RONDA_PROGRAMS_OPTIONS_LOCAL_HOST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ronda {

// Returns the names and numeric addresses of this host.
std::vector<std::string> OwnAddresses();

// Returns the number of cores that this process may run on.
int CountCores();

// Returns the number of NVIDIA GPUs that the driver lists.
int CountGpus();

// One core, as a list of the operating system's numbers of its hardware threads.
using Core = std::vector<int>;

// The cores of a host that ranks may use, in a list for each memory node. Memory nodes without such cores are left out.
struct HostCores {
  std::vector<std::vector<Core>> nodes;
};

// Returns the cores that this process may use, as hwloc finds them.
// Errors: INTERNAL if hwloc fails.
absl::StatusOr<HostCores> ThisHostsCores();

// Returns `count` different ports of this host. No program listens on these ports now. A port is 0 if the system has no
// more free ports. Rank 0 will listen on the ports a moment later. If possible, the function chooses ports that the
// system never gives to outgoing connections.
std::vector<int> FindFreePorts(int count);

// Returns the path of this program, or "rondarun" if the system does not report the path.
std::string ProgramPath();

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_LOCAL_HOST_H_
