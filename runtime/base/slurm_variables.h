// SPDX-License-Identifier: Apache-2.0

// Parses values of Slurm's variables: compressed lists of hosts, compressed lists of counts, and step numbers.
#ifndef RONDA_RUNTIME_BASE_SLURM_VARIABLES_H_
#define RONDA_RUNTIME_BASE_SLURM_VARIABLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// Returns {"n01", "n02", "n03", "n7", "m2"} for "n[01-03,7],m2". A name can contain several lists of numbers:
// "rack[1-2]n[01-03]a" is six hosts. Returns nullopt if `list` is not a list of hosts, or has more than 1048576 hosts.
std::optional<std::vector<std::string>> SlurmHosts(absl::string_view list);

// Returns {2, 2, 2, 1} for "2(x3),1". Returns nullopt if `list` is not a list of counts, or has more than 1048576
// hosts.
std::optional<std::vector<int>> SlurmTaskCounts(absl::string_view list);

// Steps with this SLURM_STEP_ID or a higher one, such as batch scripts and interactive shells, were not started by
// srun.
inline constexpr int64_t kSlurmSpecialSteps = 0xfffffff0;

// Returns whether srun started the step with this SLURM_STEP_ID. Returns true if the value is not a number.
bool IsStepOfSrun(absl::string_view step_id);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SLURM_VARIABLES_H_
