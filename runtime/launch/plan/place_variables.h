// The variables that tell a rank its place in the job before it has begun: RONDA_RANK and its companions, and those of
// torchrun and horovodrun (RANK, HOROVOD_RANK), which other libraries and programs read. MASTER_ADDR and MASTER_PORT
// are no part of the place (AddStoreAddress in launch_plan.h).
//
// All functions are pure.
#ifndef RONDA_RUNTIME_LAUNCH_PLAN_PLACE_VARIABLES_H_
#define RONDA_RUNTIME_LAUNCH_PLAN_PLACE_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/peer.h"

namespace ronda {

// Whether `name` is one of these variables, which the launcher alone sets.
bool IsPlaceVariable(absl::string_view name);

// All of them, as "NAME=value". `host` is the position of the rank's host among those of the job: torchrun's
// GROUP_RANK.
std::vector<std::string> PlaceVariables(const Topology& topology, int host);

// The variables of a member of an elastic job, whose slot is one of so many of its host: it is also its local rank
// there, so that it keeps a device for life. Its place in each epoch comes from the launcher: a rank and a size that
// hold for the whole job do not exist, so the variables of other launchers say the local place alone.
std::vector<std::string> SlotVariables(int slot, int slots);

// The variables in which an mpirun tells its processes their place.
struct MpirunPlace {
  absl::string_view rank;
  absl::string_view size;
  absl::string_view local_rank;
  absl::string_view local_size;
};

// Commands for a shell that each rank of mpirun begins with: they set the variables from those of `mpirun`. If each
// host has `ranks_per_host` ranks in a row they set GROUP_RANK and the cross rank too; 0: not known. The commands end
// with a blank.
//
// RONDA_RANK is set with RANK: else Ronda would take the process for one of torchrun's.
std::string PlaceScript(const MpirunPlace& mpirun, int rank_count, int ranks_per_host);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PLAN_PLACE_VARIABLES_H_
