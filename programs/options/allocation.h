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

// The hosts that a scheduler has allocated to the script or shell that starts rondarun.
struct Allocation {
  std::string scheduler;         // "Slurm"
  std::string variable;          // the variable that names the hosts: "SLURM_JOB_NODELIST"
  std::vector<HostSlots> hosts;  // in the scheduler's order, with one slot per task
};

// Finds the Slurm, PBS or LSF allocation that contains this process, from the scheduler's environment variables. The
// result lists this host under its own name, even if the scheduler uses a different name. Returns nullopt if this
// process is not in an allocation, or is one of the tasks that were started on the allocated hosts. (Otherwise, each
// task would use all hosts.)
//
// Errors: INVALID_ARGUMENT, with a text that names the variable, its value and the expected form.
absl::StatusOr<std::optional<Allocation>> FindAllocation(const ArgumentSources& sources);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_OPTIONS_ALLOCATION_H_
