// SPDX-License-Identifier: Apache-2.0

// Decides on which host and cores each rank runs, and in which environment. All functions in this file are pure: they
// depend only on their arguments.
#ifndef RONDA_PROGRAMS_RONDARUN_PLAN_LAUNCH_PLAN_H_
#define RONDA_PROGRAMS_RONDARUN_PLAN_LAUNCH_PLAN_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/hosts.h"
#include "programs/options/launch_options.h"
#include "programs/options/local_host.h"
#include "runtime/base/peer.h"

namespace ronda {

// "NAME" of "NAME=value".
absl::string_view NameOf(absl::string_view variable);

bool ContainsName(const std::vector<std::string>& variables, absl::string_view name);

// Returns the variables that ranks inherit from the launcher's `environment` ("NAME=value"). `settings` override
// variables of the same name. Variables that tell a rank its place in a job are dropped, because the launcher may be a
// rank of another job.
std::vector<std::string> InheritedVariables(const std::vector<std::string>& environment,
                                            const std::map<std::string, std::string>& settings);

// Returns those of `variables` that ranks on other hosts also get: Ronda's and NCCL's variables, the search paths for
// programs and libraries, the settings, and the variables named in `exports`.
std::vector<std::string> VariablesForOtherHosts(const std::vector<std::string>& variables,
                                                const std::map<std::string, std::string>& settings,
                                                const std::vector<std::string>& exports);

// Variables that the ranks get by default, unless the user has set them.
struct DefaultVariables {
  std::vector<std::string> variables;  // "NAME=value"
  std::vector<std::string> notes;      // for every user: defaults that may surprise
};

// Returns the defaults that are missing from `variables`, for a job or node with `rank_count` ranks.
DefaultVariables DefaultsFor(int rank_count, const std::vector<std::string>& variables);

// Adds MASTER_ADDR and MASTER_PORT, unless a user option sets one of them. Rank 0 may listen there for other libraries.
// For example, torch.distributed has its store at this address. Ronda itself uses a different port.
void AddStoreAddress(absl::string_view address, int port, std::vector<std::string>* variables);

// Returns the time within which ranks must start: RONDA_START_TIMEOUT from `variables`, or the default if that is unset
// or malformed. The ranks themselves report a malformed value.
absl::Duration StartTimeoutOf(const std::vector<std::string>& variables);

// Returns how long a rank may be silent: RONDA_HEARTBEAT_TIMEOUT from `variables`, or the default if that is unset or
// malformed.
absl::Duration HeartbeatTimeoutOf(const std::vector<std::string>& variables);

// The facts on which a plan is based.
struct PlanRequest {
  int rank_count = 0;              // with `nodes`, on this node
  std::vector<HostSlots> hosts;    // filled in this order
  std::optional<NodeGroup> nodes;  // the ranks belong to one node of several; `hosts` is only that node
  std::string job_id;              // names the job's shared memory, /dev/shm/ronda-<job id>*
  std::string job_secret;          // proves membership of the job
  int free_port = 0;               // of this host, where its ranks meet if they cannot do so in memory
  int store_port = 0;              // of this host, for a store of another library
  bool output_is_terminal = false;
  // kRanks: each process keeps its rank. kSlots: each process is a member of an elastic job, so only its slot is known
  // (SlotVariables).
  enum class Places { kRanks, kSlots } places = Places::kRanks;
  std::vector<std::string> environment;         // the launcher's own, "NAME=value"
  std::map<std::string, std::string> settings;  // variables that replace variables of the environment
};

// One rank: its place in the job, and the environment in which it starts.
struct RankPlan {
  Topology topology;
  int host = 0;                          // its position among the hosts of the job
  std::vector<std::string> environment;  // "NAME=value"
};

struct LaunchPlan {
  std::vector<RankPlan> ranks;     // by rank; with `nodes`, this node's
  std::vector<std::string> notes;  // notes for every user
};

// Decides on which host each rank runs, and in which environment. A pure function.
//
// Ranks fill the hosts in order. The variables of a rank's place override inherited ones. So if a rank starts another
// job, the two jobs are separate. The settings also override inherited variables. All other variables are passed on.
// Ranks on several nodes get no job id, because a job id would imply that all ranks share a host. They find each other
// at the master address. Ranks on one host find each other through shared memory, or at the free port if RONDA_BACKEND
// requires messages over TCP.
//
// Errors: INVALID_ARGUMENT if the hosts have too few slots, or if nodes run on several hosts without a secret.
absl::StatusOr<LaunchPlan> MakeLaunchPlan(const PlanRequest& request);

// Returns OK if this host can bind `local_size` ranks to cores as `binding` requires. Errors: INVALID_ARGUMENT if each
// rank must have its own core, and this host has too few.
absl::Status CheckBinding(const HostCores& cores, LaunchOptions::Binding binding, int local_size);

// Returns the operating system's numbers of the hardware threads that a rank may use. An empty result means all
// threads.
//
// kCore: one core per rank, in the order of the NUMA nodes. If an elastic job has more members than cores, assignment
// continues from the first core. kNuma: the cores of one NUMA node. Neighbouring ranks share a NUMA node. Some NUMA
// nodes may get one rank more than others.
//
// REQUIRES: 0 <= local_rank < local_size.
std::vector<int> CpusOfRank(const HostCores& cores, LaunchOptions::Binding binding, int local_rank, int local_size);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_LAUNCH_PLAN_H_
