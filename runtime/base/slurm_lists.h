// The compressed lists in which Slurm's variables name hosts and count tasks.
#ifndef RONDA_RUNTIME_BASE_SLURM_LISTS_H_
#define RONDA_RUNTIME_BASE_SLURM_LISTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ronda {

// "n01" of "n[01-03,7],m2"; nullopt if that is no list.
std::optional<std::string> FirstSlurmHost(absl::string_view list);

// {2, 2, 2, 1} of "2(x3),1"; nullopt if that is no list, or one of more than 1048576 hosts.
std::optional<std::vector<int>> SlurmTaskCounts(absl::string_view list);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SLURM_LISTS_H_
