// SPDX-License-Identifier: Apache-2.0

// The variables that tell a rank its place in the job (its rank, its local rank, and the sizes) before it begins. These
// are RONDA_RANK and its companions, and the variables of torchrun and horovodrun (RANK, HOROVOD_RANK), which other
// libraries and programs read. MASTER_ADDR and MASTER_PORT are not part of the place (AddStoreAddress in
// launch_plan.h).
//
// All functions are pure.
#ifndef RONDA_PROGRAMS_RONDARUN_PLAN_PLACE_VARIABLES_H_
#define RONDA_PROGRAMS_RONDARUN_PLAN_PLACE_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/peer.h"

namespace ronda {

// Whether `name` is one of these variables, which only the launcher sets.
bool IsPlaceVariable(absl::string_view name);

// All of these variables, as "NAME=value". `host` is the position of the rank's host in the job, which is torchrun's
// GROUP_RANK.
std::vector<std::string> PlaceVariables(const Topology& topology, int host);

// The variables of a member of an elastic job. Its host has `slots` slots. The member's slot is also its local rank, so
// it keeps the same device for life. The launcher later tells the member its rank in each epoch. No rank and no size
// are valid for the whole job. So the variables of other launchers contain only the local rank and the local size.
std::vector<std::string> SlotVariables(int slot, int slots);

// The variables by which an mpirun tells its processes their place.
struct MpirunPlace {
  absl::string_view rank;
  absl::string_view size;
  absl::string_view local_rank;
  absl::string_view local_size;
};

// Commands for the shell with which each rank of mpirun begins. They set the place's variables from the variables of
// `mpirun`. If each host has `ranks_per_host` ranks in a row, they also set GROUP_RANK and the cross rank; 0: not
// known. The commands end with a blank.
//
// RONDA_RANK is set whenever RANK is set. If only RANK was set, Ronda would take the process for a rank of torchrun.
std::string PlaceScript(const MpirunPlace& mpirun, int rank_count, int ranks_per_host);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_PLACE_VARIABLES_H_
