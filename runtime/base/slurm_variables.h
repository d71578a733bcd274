// SPDX-License-Identifier: Apache-2.0

// Values of Slurm's variables: compressed lists of hosts and of counts, and numbers of steps.
#ifndef RONDA_RUNTIME_BASE_SLURM_VARIABLES_H_
#define RONDA_RUNTIME_BASE_SLURM_VARIABLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// {"n01", "n02", "n03", "n7", "m2"} of "n[01-03,7],m2". A name can have several numbers: "rack[1-2]n[01-03]a" is six
// hosts. nullopt if that is no list, or one of more than 1048576 hosts.
std::optional<std::vector<std::string>> SlurmHosts(absl::string_view list);

// {2, 2, 2, 1} of "2(x3),1"; nullopt if that is no list, or one of more than 1048576 hosts.
std::optional<std::vector<int>> SlurmTaskCounts(absl::string_view list);

// From here on the values of SLURM_STEP_ID are not of srun: batch scripts, interactive shells.
inline constexpr int64_t kSlurmSpecialSteps = 0xfffffff0;

// Whether a process with this SLURM_STEP_ID is a task of srun. A value that is no number counts as such.
bool IsStepOfSrun(absl::string_view step_id);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SLURM_VARIABLES_H_
