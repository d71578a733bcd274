// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/launch_plan.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "programs/rondarun/plan/place_variables.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/variable_name.h"

namespace ronda {
namespace {

// Variables that the launcher itself sets for a rank, besides those of the rank's place. A rank never inherits their
// values from the launcher's environment.
constexpr VariableName kOwned[] = {"RONDA_JOB_ID",      "RONDA_JOB_SECRET",    "RONDA_MASTER_ADDR",
                                   "RONDA_MASTER_PORT", "RONDA_MEMBERSHIP_FD", "RONDA_OUTPUT_IS_TERMINAL",
                                   "MASTER_ADDR",       "MASTER_PORT"};

bool IsOwned(absl::string_view name) {
  return IsPlaceVariable(name) ||
         std::any_of(std::begin(kOwned), std::end(kOwned), [&](VariableName owned) { return owned.view() == name; });
}

constexpr absl::string_view kPassedPrefixes[] = {"RONDA_", "NCCL_"};
constexpr absl::string_view kPassed[] = {"PATH",        "LD_LIBRARY_PATH",      "PYTHONPATH",      "MASTER_ADDR",
                                         "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONUNBUFFERED"};

// A variable that the ranks get by default, unless the user has set it.
struct DefaultVariable {
  absl::string_view name;
  absl::string_view value;
  int least_ranks;         // smaller jobs do not get the variable
  absl::string_view note;  // for every user; empty: nothing to explain
};

constexpr DefaultVariable kDefaults[] = {
    // If its output is a pipe, Python buffers several kilobytes, which are lost if the rank is killed.
    {.name = "PYTHONUNBUFFERED", .value = "1", .least_ranks = 1, .note = ""},
    {.name = "OMP_NUM_THREADS",
     .value = "1",
     .least_ranks = 2,
     .note = "OMP_NUM_THREADS is not set: each rank gets OMP_NUM_THREADS=1, because the ranks of a host share its "
             "cores; set it to the number of threads that is best for your program"},
};

bool Contains(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsPassed(absl::string_view name) {
  return std::find(std::begin(kPassed), std::end(kPassed), name) != std::end(kPassed) ||
         std::any_of(std::begin(kPassedPrefixes), std::end(kPassedPrefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

constexpr int kLastPort = 65535;
constexpr absl::string_view kLoopback = "127.0.0.1";

// Returns the number of hosts on which a rank has this local rank.
int CrossSize(const std::vector<int>& local_sizes, int local_rank) {
  return static_cast<int>(
      std::count_if(local_sizes.begin(), local_sizes.end(), [&](int size) { return size > local_rank; }));
}

// Returns the number of ranks on each host.
absl::StatusOr<std::vector<int>> CountLocalRanks(const PlanRequest& request) {
  std::vector<int> local_sizes = FillHosts(request.hosts, request.rank_count);
  if (std::accumulate(local_sizes.begin(), local_sizes.end(), 0) == request.rank_count) return local_sizes;
  return absl::InvalidArgumentError(absl::StrCat("-np ", request.rank_count, " needs ", request.rank_count,
                                                 " slots, and -H offers ", CountSlots(request.hosts),
                                                 "; give more slots, for example -H localhost:", request.rank_count));
}

std::vector<RankPlan> PlaceRanks(const PlanRequest& request, const std::vector<int>& local_sizes) {
  std::vector<RankPlan> ranks;
  for (size_t host = 0; host < local_sizes.size(); ++host) {
    const std::vector<int> hosts_before(local_sizes.begin(), local_sizes.begin() + static_cast<std::ptrdiff_t>(host));
    for (int local_rank = 0; local_rank < local_sizes[host]; ++local_rank) {
      ranks.push_back({.topology = {.rank = static_cast<RankId>(ranks.size()),
                                    .size = request.rank_count,
                                    .local_rank = local_rank,
                                    .local_size = local_sizes[host],
                                    .cross_rank = CrossSize(hosts_before, local_rank),
                                    .cross_size = CrossSize(local_sizes, local_rank),
                                    .hostname = request.hosts[host].host},
                       .host = static_cast<int>(host)});
    }
  }
  return ranks;
}

// Every node has as many ranks as this one.
std::vector<RankPlan> PlaceRanksOfNode(const PlanRequest& request, const NodeGroup& group) {
  std::vector<RankPlan> ranks;
  ranks.reserve(static_cast<size_t>(request.rank_count));
  for (int local_rank = 0; local_rank < request.rank_count; ++local_rank) {
    ranks.push_back({.topology = {.rank = group.node_rank * request.rank_count + local_rank,
                                  .size = group.nodes * request.rank_count,
                                  .local_rank = local_rank,
                                  .local_size = request.rank_count,
                                  .cross_rank = group.node_rank,
                                  .cross_size = group.nodes,
                                  .hostname = request.hosts.front().host},
                     .host = group.node_rank});
  }
  return ranks;
}

bool IsLoopback(absl::string_view address) {
  return address == "localhost" || address == "::1" || absl::StartsWith(address, "127.");
}

absl::Status CheckSecret(const PlanRequest& request) {
  if (!request.nodes || !request.job_secret.empty() || IsLoopback(request.nodes->master_address)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "RONDA_JOB_SECRET is not set: ranks on several nodes prove by it that they belong together; set it to the same "
      "value on every node, for example to the output of: openssl rand -hex 32");
}

void AddUnlessSet(absl::string_view name, absl::string_view value, std::vector<std::string>* environment) {
  if (!ContainsName(*environment, name)) environment->push_back(absl::StrCat(name, "=", value));
}

// Adds the address at which ranks without shared memory find each other. Only the ranks know whether their backend
// needs it.
void AddMasterAddress(absl::string_view address, int port, std::vector<std::string>* environment) {
  AddUnlessSet("RONDA_MASTER_ADDR", address, environment);
  AddUnlessSet("RONDA_MASTER_PORT", absl::StrCat(port), environment);
}

// Returns the variables that are the same for all ranks.
std::vector<std::string> CommonEnvironment(const PlanRequest& request) {
  std::vector<std::string> environment = InheritedVariables(request.environment, request.settings);
  if (!request.nodes) {
    environment.push_back(absl::StrCat("RONDA_JOB_ID=", request.job_id));
    // Port 0 means that the system does not allow sockets. The ranks can then still find each other through shared
    // memory.
    if (request.rank_count > 1 && request.free_port != 0) AddMasterAddress(kLoopback, request.free_port, &environment);
    if (request.store_port != 0) AddStoreAddress(kLoopback, request.store_port, &environment);
  } else {
    AddMasterAddress(request.nodes->master_address, request.nodes->master_port, &environment);
    // All nodes must use the same port, so each node derives it from the master port.
    const int port = request.nodes->master_port;
    AddStoreAddress(request.nodes->master_address, port < kLastPort ? port + 1 : port - 1, &environment);
  }
  if (!request.job_secret.empty()) environment.push_back(absl::StrCat("RONDA_JOB_SECRET=", request.job_secret));
  if (request.output_is_terminal) environment.push_back("RONDA_OUTPUT_IS_TERMINAL=1");
  return environment;
}

std::vector<int> CpusOf(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.begin(), core.end());
  return cpus;
}

std::vector<Core> CoresOf(const HostCores& host) {
  std::vector<Core> cores;
  for (const auto& node : host.nodes) cores.insert(cores.end(), node.begin(), node.end());
  return cores;
}

// Returns the value of the variable if it is a positive duration, or else `otherwise`.
absl::Duration DurationOf(const std::vector<std::string>& variables, VariableName name, absl::Duration otherwise) {
  for (const std::string& variable : variables) {
    if (NameOf(variable) != name.view()) continue;
    absl::Duration duration;
    const bool is_one = ParseDurationOrSeconds(variable.substr(variable.find('=') + 1), &duration);
    return is_one && duration > absl::ZeroDuration() ? duration : otherwise;
  }
  return otherwise;
}

}  // namespace

absl::string_view NameOf(absl::string_view variable) { return variable.substr(0, variable.find('=')); }

bool ContainsName(const std::vector<std::string>& variables, absl::string_view name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const std::string& variable) { return NameOf(variable) == name; });
}

std::vector<std::string> InheritedVariables(const std::vector<std::string>& environment,
                                            const std::map<std::string, std::string>& settings) {
  std::vector<std::string> variables;
  for (const std::string& variable : environment) {
    const absl::string_view name = NameOf(variable);
    if (!IsOwned(name) && !settings.contains(std::string(name))) variables.push_back(variable);
  }
  for (const auto& [name, value] : settings) variables.push_back(absl::StrCat(name, "=", value));
  return variables;
}

std::vector<std::string> VariablesForOtherHosts(const std::vector<std::string>& variables,
                                                const std::map<std::string, std::string>& settings,
                                                const std::vector<std::string>& exports) {
  std::vector<std::string> passed;
  for (const std::string& variable : variables) {
    const absl::string_view name = NameOf(variable);
    if (IsPassed(name) || settings.contains(std::string(name)) || Contains(exports, name)) passed.push_back(variable);
  }
  return passed;
}

DefaultVariables DefaultsFor(int rank_count, const std::vector<std::string>& variables) {
  DefaultVariables defaults;
  for (const DefaultVariable& each : kDefaults) {
    if (rank_count < each.least_ranks || ContainsName(variables, each.name)) continue;
    defaults.variables.push_back(absl::StrCat(each.name, "=", each.value));
    if (!each.note.empty()) defaults.notes.emplace_back(each.note);
  }
  return defaults;
}

void AddStoreAddress(absl::string_view address, int port, std::vector<std::string>* variables) {
  if (ContainsName(*variables, "MASTER_ADDR") || ContainsName(*variables, "MASTER_PORT")) return;
  variables->push_back(absl::StrCat("MASTER_ADDR=", address));
  variables->push_back(absl::StrCat("MASTER_PORT=", port));
}

absl::Duration StartTimeoutOf(const std::vector<std::string>& variables) {
  return DurationOf(variables, "RONDA_START_TIMEOUT", Tunables().start_timeout);
}

absl::Duration HeartbeatTimeoutOf(const std::vector<std::string>& variables) {
  return DurationOf(variables, "RONDA_HEARTBEAT_TIMEOUT", NetworkSettings().heartbeat_timeout);
}

absl::StatusOr<LaunchPlan> MakeLaunchPlan(const PlanRequest& request) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<int> local_sizes, CountLocalRanks(request));
  RONDA_RETURN_IF_ERROR(CheckSecret(request));
  LaunchPlan plan;
  std::vector<std::string> common = CommonEnvironment(request);
  DefaultVariables defaults = DefaultsFor(request.rank_count, common);
  common.insert(common.end(), defaults.variables.begin(), defaults.variables.end());
  plan.notes = std::move(defaults.notes);
  plan.ranks = request.nodes ? PlaceRanksOfNode(request, *request.nodes) : PlaceRanks(request, local_sizes);
  for (RankPlan& rank : plan.ranks) {
    const std::vector<std::string> place = request.places == PlanRequest::Places::kSlots
                                               ? SlotVariables(rank.topology.local_rank, rank.topology.local_size)
                                               : PlaceVariables(rank.topology, rank.host);
    rank.environment = common;
    rank.environment.insert(rank.environment.end(), place.begin(), place.end());
  }
  return plan;
}

absl::Status CheckBinding(const HostCores& host, LaunchOptions::Binding binding, int local_size) {
  const int cores = static_cast<int>(CoresOf(host).size());
  if (binding != LaunchOptions::Binding::kCore || cores == 0 || local_size <= cores) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--binding core: ", local_size, " ranks on this host, and it has ",
                                                 cores, cores == 1 ? " core" : " cores",
                                                 " for them; start no more ranks than that, or give --binding none"));
}

std::vector<int> CpusOfRank(const HostCores& cores, LaunchOptions::Binding binding, int local_rank, int local_size) {
  if (cores.nodes.empty() || binding == LaunchOptions::Binding::kNone) return {};
  const auto rank = static_cast<size_t>(local_rank);
  if (binding == LaunchOptions::Binding::kNuma) {
    return CpusOf(cores.nodes[rank * cores.nodes.size() / static_cast<size_t>(local_size)]);
  }
  const std::vector<Core> all = CoresOf(cores);
  return all[rank % all.size()];
}

}  // namespace ronda
