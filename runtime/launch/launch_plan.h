#ifndef RONDA_RUNTIME_LAUNCH_LAUNCH_PLAN_H_
#define RONDA_RUNTIME_LAUNCH_LAUNCH_PLAN_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/peer.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/launch_options.h"

namespace ronda {

// What a plan is made from.
struct PlanRequest {
  int rank_count = 0;              // with `nodes`, on this node
  std::vector<HostSlots> hosts;    // filled in this order
  std::optional<NodeGroup> nodes;  // the ranks are those of one node of several; `hosts` is this one alone
  std::string job_id;              // names the job's shared memory, /dev/shm/ronda-<job id>*
  std::string job_secret;          // proves membership of the job
  int free_port = 0;               // of this host, where its ranks meet if they cannot do that in memory
  bool output_is_terminal = false;
  std::vector<std::string> environment;         // the launcher's own, "NAME=value"
  std::map<std::string, std::string> settings;  // variables that replace those of the environment
};

// One rank: where it stands, and the environment it starts with.
struct RankPlan {
  Topology topology;
  std::vector<std::string> environment;  // "NAME=value"
};

struct LaunchPlan {
  std::vector<RankPlan> ranks;    // by rank; with `nodes`, this node's
  bool sets_omp_threads = false;  // OMP_NUM_THREADS was unset and is 1 in this plan
};

// Decides which rank runs where, and with which environment. Pure: what it knows is in `request`.
//
// Ranks fill the hosts in order. The variables that tell a rank its place replace whatever the launcher inherited, so
// that a job started by a rank of another job is a job of its own; so do the settings. All others are passed on.
// Ranks of several nodes have no job id, which would mean that all share a host; they meet at the master's address.
// Those of one host meet in memory, but for a RONDA_BACKEND of messages over TCP at the free port.
//
// Several ranks on a host share its cores, so OMP_NUM_THREADS is 1 unless the user has set it.
//
// Errors: INVALID_ARGUMENT if the hosts have too few slots, or nodes on several hosts no secret.
absl::StatusOr<LaunchPlan> MakeLaunchPlan(const PlanRequest& request);

// The variables that tell a rank its place.
std::vector<std::string> PlaceVariables(const Topology& topology);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_LAUNCH_PLAN_H_
