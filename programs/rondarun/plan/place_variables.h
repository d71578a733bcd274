// SPDX-License-Identifier: Apache-2.0

// The variables that tell a rank its place in the job before it starts: its rank, its local rank, and the sizes. They
// are RONDA_RANK and its companions, and those of torchrun and horovodrun (RANK, HOROVOD_RANK), which other libraries
// and programs read. MASTER_ADDR and MASTER_PORT are not part of the place (AddStoreAddress in launch_plan.h).
//
// All functions in this file are pure.
#ifndef RONDA_PROGRAMS_RONDARUN_PLAN_PLACE_VARIABLES_H_
#define RONDA_PROGRAMS_RONDARUN_PLAN_PLACE_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/peer.h"

namespace ronda {

// Returns whether the variable `name` describes a rank's place. Only the launcher may set such variables.
bool IsPlaceVariable(absl::string_view name);

// Returns all variables of a rank's place, as "NAME=value". `host` is the index of the rank's host in the job, which is
// torchrun's GROUP_RANK.
std::vector<std::string> PlaceVariables(const Topology& topology, int host);

// Returns the variables for a member of an elastic job, on a host with `slots` slots. The slot is also the member's
// local rank, so the member uses the same device for its whole life. The launcher later tells the member its rank in
// each epoch. A member's rank and the job's size can change, so of the variables of other launchers, only those for the
// local rank and the local size are set.
std::vector<std::string> SlotVariables(int slot, int slots);

// The variables through which a kind of mpirun tells each process its place.
struct MpirunPlace {
  absl::string_view rank;
  absl::string_view size;
  absl::string_view local_rank;
  absl::string_view local_size;
};

// Returns commands for the shell in which mpirun starts each rank. They set the variables of the rank's place from
// those of `mpirun`. If each host has `ranks_per_host` consecutive ranks, the commands also set GROUP_RANK and the
// cross rank. 0 means that the number is unknown. The result ends with a blank.
//
// RANK is never set without RONDA_RANK, because Ronda would take a process with only RANK for a rank of torchrun.
std::string PlaceScript(const MpirunPlace& mpirun, int rank_count, int ranks_per_host);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_PLACE_VARIABLES_H_
