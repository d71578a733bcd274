// SPDX-License-Identifier: Apache-2.0

// Functions about the launcher's own host and process.
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

// One core: the operating system's numbers of its hardware threads.
using Core = std::vector<int>;

// The cores of a host that ranks may use, listed by NUMA node. NUMA nodes without such cores are omitted.
struct HostCores {
  std::vector<std::vector<Core>> nodes;
};

// Returns the cores that this process may use, according to hwloc. Errors: INTERNAL if hwloc fails.
absl::StatusOr<HostCores> ThisHostsCores();

// Returns `count` different ports of this host on which no program is listening now. A port is 0 if the system has no
// more free ports. Rank 0 will listen on the ports shortly afterwards. If possible, chooses ports that the system never
// uses for outgoing connections.
std::vector<int> FindFreePorts(int count);

// Returns the path of this program, or "rondarun" if the path cannot be determined.
std::string ProgramPath();

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_LOCAL_HOST_H_
