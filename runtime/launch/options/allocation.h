#ifndef RONDA_RUNTIME_LAUNCH_OPTIONS_ALLOCATION_H_
#define RONDA_RUNTIME_LAUNCH_OPTIONS_ALLOCATION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/launch/options/arguments.h"
#include "runtime/launch/options/hosts.h"

namespace ronda {

// The hosts that a scheduler has given to the script or shell that starts rondarun.
struct Allocation {
  std::string scheduler;         // "Slurm"
  std::string variable;          // the one that names the hosts: "SLURM_JOB_NODELIST"
  std::vector<HostSlots> hosts;  // in the scheduler's order, with one slot a task
};

// Looks for the allocation of Slurm, PBS or LSF that this process is in, in the scheduler's variables. This host has
// its own name in the list, however the scheduler calls it. nullopt: there is no allocation, or this process is one of
// the tasks that were started on its hosts, so that each of them would take all hosts.
//
// Errors: INVALID_ARGUMENT that names the variable, its value and its proper form.
absl::StatusOr<std::optional<Allocation>> FindAllocation(const ArgumentSources& sources);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_OPTIONS_ALLOCATION_H_
