// SPDX-License-Identifier: Apache-2.0

// Decides on which host and cores each rank runs, and with which environment. All functions in this file are pure: they
// use only their arguments.
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

// Returns the variables that ranks inherit from the launcher's `environment` ("NAME=value"). `settings` replace
// variables with the same names. Variables that tell a rank its place in a job are left out, because the launcher may
// be a rank of another job.
std::vector<std::string> InheritedVariables(const std::vector<std::string>& environment,
                                            const std::map<std::string, std::string>& settings);

// Returns the part of `variables` that ranks on other hosts also get. This part consists of Ronda's and NCCL's
// variables, the paths of programs and libraries, the settings, and the variables named in `exports`.
std::vector<std::string> VariablesForOtherHosts(const std::vector<std::string>& variables,
                                                const std::map<std::string, std::string>& settings,
                                                const std::vector<std::string>& exports);

// Variables that ranks get by default, unless the user has set them.
struct DefaultVariables {
  std::vector<std::string> variables;  // "NAME=value"
  std::vector<std::string> notes;      // for every user: defaults that may surprise
};

// Returns the defaults that are not among `variables`, for a job, or a node, with `rank_count` ranks.
DefaultVariables DefaultsFor(int rank_count, const std::vector<std::string>& variables);

// Adds MASTER_ADDR and MASTER_PORT, unless an option of the user sets one of them. Rank 0 may listen at MASTER_ADDR and
// MASTER_PORT for other libraries. For example, torch.distributed has its store at this address. Ronda itself uses
// another port.
void AddStoreAddress(absl::string_view address, int port, std::vector<std::string>* variables);

// Returns the time within which ranks must start: RONDA_START_TIMEOUT in `variables`, or the default if
// RONDA_START_TIMEOUT is unset or malformed. The ranks themselves report a malformed value.
absl::Duration StartTimeoutOf(const std::vector<std::string>& variables);

// Returns the longest time that a rank may be silent: RONDA_HEARTBEAT_TIMEOUT in `variables`, or the default if
// RONDA_HEARTBEAT_TIMEOUT is unset or malformed.
absl::Duration HeartbeatTimeoutOf(const std::vector<std::string>& variables);

// The facts from which a plan is made.
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

// One rank: its place in the job, and the environment with which it starts.
struct RankPlan {
  Topology topology;
  int host = 0;                          // its position among the hosts of the job
  std::vector<std::string> environment;  // "NAME=value"
};

struct LaunchPlan {
  std::vector<RankPlan> ranks;     // by rank; with `nodes`, this node's
  std::vector<std::string> notes;  // notes for every user
};

// Decides on which host each rank runs, and with which environment. MakeLaunchPlan() is pure: it uses only `request`.
//
// Ranks fill the hosts in order. The variables of a rank's place replace inherited ones. So if a rank starts another
// job, this job is separate. The settings also replace inherited variables. All other variables are passed on. Ranks of
// several nodes get no job id, because a job id would mean that all ranks share a host. Ranks of several nodes find
// each other at the master's address. Ranks of one host find each other in shared memory, or at the free port if
// RONDA_BACKEND asks for messages over TCP.
//
// Errors: INVALID_ARGUMENT if the hosts have too few slots, or if nodes run on several hosts without a secret.
absl::StatusOr<LaunchPlan> MakeLaunchPlan(const PlanRequest& request);

// Returns OK if this host can bind `local_size` ranks.
// Errors: INVALID_ARGUMENT if each rank must have its own core, but this host has too few cores.
absl::Status CheckBinding(const HostCores& cores, LaunchOptions::Binding binding, int local_size);

// Returns the operating system's numbers of the hardware threads that a rank may use. An empty result means all
// threads.
//
// kCore: one core per rank, in the order of the memory nodes. If an elastic job has more members than cores, the next
// members begin again at the first core. kNuma: the cores of one memory node. Neighbouring ranks share a memory node.
// Some memory nodes may get one rank more than others.
//
// REQUIRES: 0 <= local_rank < local_size.
std::vector<int> CpusOfRank(const HostCores& cores, LaunchOptions::Binding binding, int local_rank, int local_size);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_LAUNCH_PLAN_H_
