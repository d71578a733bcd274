// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_OPTIONS_ALLOCATION_H_
#define RONDA_PROGRAMS_OPTIONS_ALLOCATION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/options/arguments.h"
#include "programs/options/hosts.h"

namespace ronda {

// The hosts that a scheduler has given to the script or shell that starts rondarun.
struct Allocation {
  std::string scheduler;         // "Slurm"
  std::string variable;          // the variable that names the hosts: "SLURM_JOB_NODELIST"
  std::vector<HostSlots> hosts;  // in the scheduler's order, with one slot per task
};

// Looks in the scheduler's variables for the allocation of Slurm, PBS or LSF that contains this process. The list
// contains this host's own name, even if the scheduler uses another name for this host. Returns nullopt if this process
// is in no allocation, or is one of the tasks that were started on the allocation's hosts. (If tasks used the
// allocation, each task would take all hosts.)
//
// Errors: INVALID_ARGUMENT that names the variable, its value and the right form.
absl::StatusOr<std::optional<Allocation>> FindAllocation(const ArgumentSources& sources);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_ALLOCATION_H_
