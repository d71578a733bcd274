// Which rank runs where: with which environment, and on which cores. Pure: everything it knows is passed in.
#ifndef RONDA_RUNTIME_LAUNCH_PLAN_LAUNCH_PLAN_H_
#define RONDA_RUNTIME_LAUNCH_PLAN_LAUNCH_PLAN_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/launch/options/hosts.h"
#include "runtime/launch/options/launch_options.h"
#include "runtime/launch/options/local_host.h"

namespace ronda {

// "NAME" of "NAME=value".
absl::string_view NameOf(absl::string_view variable);

bool ContainsName(const std::vector<std::string>& variables, absl::string_view name);

// The variables that ranks inherit from the launcher's `environment` ("NAME=value"), with `settings` in place of those
// of the same names. Variables that tell a rank its place in a job are left out: the launcher may be a rank of another
// job.
std::vector<std::string> InheritedVariables(const std::vector<std::string>& environment,
                                            const std::map<std::string, std::string>& settings);

// Those of `variables` that ranks on other hosts get too: Ronda's, NCCL's, where programs and libraries are, the
// settings, and those that the user names in `exports`.
std::vector<std::string> VariablesForOtherHosts(const std::vector<std::string>& variables,
                                                const std::map<std::string, std::string>& settings,
                                                const std::vector<std::string>& exports);

// Variables that ranks get unless they are set.
struct DefaultVariables {
  std::vector<std::string> variables;  // "NAME=value"
  std::vector<std::string> notes;      // for every user: those that may surprise
};

// Those that are not among `variables`, for a job, or a node, of so many ranks.
DefaultVariables DefaultsFor(int rank_count, const std::vector<std::string>& variables);

// Adds MASTER_ADDR and MASTER_PORT, unless the user has set one by an option: where rank 0 may listen for other
// libraries. torch.distributed keeps its store there. Ronda's ranks meet elsewhere.
void AddStoreAddress(absl::string_view address, int port, std::vector<std::string>* variables);

// How long the ranks that get `variables` may take to start: their RONDA_START_TIMEOUT, or its default if it is unset
// or makes no sense, which the ranks then say.
absl::Duration StartTimeoutOf(const std::vector<std::string>& variables);

// Likewise, how long they may be without a sign of life: RONDA_HEARTBEAT_TIMEOUT.
absl::Duration HeartbeatTimeoutOf(const std::vector<std::string>& variables);

// The facts that a plan is made from.
struct PlanRequest {
  int rank_count = 0;              // with `nodes`, on this node
  std::vector<HostSlots> hosts;    // filled in this order
  std::optional<NodeGroup> nodes;  // the ranks are those of one node of several; `hosts` is this one alone
  std::string job_id;              // names the job's shared memory, /dev/shm/ronda-<job id>*
  std::string job_secret;          // proves membership of the job
  int free_port = 0;               // of this host, where its ranks meet if they cannot do that in memory
  int store_port = 0;              // of this host, for a store of another library
  bool output_is_terminal = false;
  // kRanks: a process keeps its rank. kSlots: it is a member of an elastic job, and its slot alone is known
  // (SlotVariables).
  enum class Places { kRanks, kSlots } places = Places::kRanks;
  std::vector<std::string> environment;         // the launcher's own, "NAME=value"
  std::map<std::string, std::string> settings;  // variables that replace those of the environment
};

// One rank: where it stands, and the environment it starts with.
struct RankPlan {
  Topology topology;
  int host = 0;                          // its position among the hosts of the job
  std::vector<std::string> environment;  // "NAME=value"
};

struct LaunchPlan {
  std::vector<RankPlan> ranks;     // by rank; with `nodes`, this node's
  std::vector<std::string> notes;  // for every user
};

// Decides which rank runs where, and with which environment. Pure: all its knowledge is in `request`.
//
// Ranks fill the hosts in order. The variables that tell a rank its place replace inherited ones, so
// that a job started by a rank of another job is a job of its own; so do the settings. All others are passed on.
// Ranks of several nodes have no job id, which would mean that all share a host; they meet at the master's address.
// Those of one host meet in memory, but for a RONDA_BACKEND of messages over TCP at the free port.
//
// Errors: INVALID_ARGUMENT if the hosts have too few slots, or nodes on several hosts no secret.
absl::StatusOr<LaunchPlan> MakeLaunchPlan(const PlanRequest& request);

// OK if this host can bind `local_size` ranks. Errors: INVALID_ARGUMENT if each is to have a core of its own and there
// are too few.
absl::Status CheckBinding(const HostCores& cores, LaunchOptions::Binding binding, int local_size);

// The hardware threads that a rank may run on, by their numbers in the system; empty: all.
//
// kCore: one core each, in the order of the memory nodes; where members of an elastic job outnumber cores they begin
// again at the first.
// kNuma: those of one memory node; neighbouring ranks share one, and every node gets the same number of ranks, give or
// take one.
//
// REQUIRES: 0 <= local_rank < local_size.
std::vector<int> CpusOfRank(const HostCores& cores, LaunchOptions::Binding binding, int local_rank, int local_size);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PLAN_LAUNCH_PLAN_H_
