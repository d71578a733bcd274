// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/allocation.h"
#include "programs/options/arguments.h"
#include "programs/options/hosts.h"
#include "programs/options/option_table.h"
#include "runtime/base/environment.h"
#include "runtime/base/slurm_variables.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/variable_name.h"

namespace ronda {
namespace {

using Action = LaunchOptions::Action;
using Choice = CommandLineDraft::Choice;
using Launcher = LaunchOptions::Launcher;

constexpr VariableName kSlurmNode = "SLURM_NODEID";
// The maximum number of allocated hosts that a note names.
constexpr size_t kMostHostsShown = 8;

bool SpeaksOfNodes(const NodeWords& node) {
  return node.nodes || node.node_rank || node.ranks_per_node || node.master_address || node.master_port ||
         node.standalone || !node.addresses.empty();
}

// Checks that --host with a list of hosts is not combined with node options. (--host with this host's address, as in
// Paddle, may be combined with them.) The table of options cannot express this rule.
absl::Status CheckHostsAndNodes(const CommandLineDraft& draft) {
  if (draft.options.hosts.empty() || !SpeaksOfNodes(draft.node)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a --host list and options for nodes do not go together: ", kHostsOrNodes));
}

// Paddle's list of addresses determines the number of nodes, the number of this node, and where rank 0 listens.
absl::Status ReadAddresses(const ArgumentSources& sources, NodeWords* node) {
  if (node->addresses.empty()) return absl::OkStatus();
  node->nodes = static_cast<int>(node->addresses.size());
  node->master_address = node->addresses.front();
  if (*node->nodes == 1) return absl::OkStatus();
  const std::vector<std::string> own = sources.own_addresses();
  const auto this_one = std::find_first_of(node->addresses.begin(), node->addresses.end(), own.begin(), own.end());
  if (this_one == node->addresses.end()) {
    return absl::InvalidArgumentError(absl::StrCat("--ips ", absl::StrJoin(node->addresses, ","),
                                                   ": none of them is this host's; its addresses are ",
                                                   absl::StrJoin(own, ", ")));
  }
  node->node_rank = static_cast<int>(this_one - node->addresses.begin());
  return absl::OkStatus();
}

// A launcher that sets the variable `number` may have started one rondarun per node. In that case, `number` holds the
// number of this node, and the variable `count`, if any, the number of nodes.
struct NodeNumber {
  VariableName number;
  VariableName count;
};
constexpr NodeNumber kNodeNumbers[] = {{.number = "JOB_COMPLETION_INDEX", .count = VariableName()},
                                       {.number = kSlurmNode, .count = "SLURM_STEP_NUM_TASKS"},
                                       {.number = "OMPI_COMM_WORLD_RANK", .count = "OMPI_COMM_WORLD_SIZE"},
                                       {.number = "PMI_RANK", .count = "PMI_SIZE"}};

// Returns the name of the variable that holds the number of this node, or an empty VariableName if there is none.
VariableName FindNodeNumber(const ArgumentSources& sources, int nodes) {
  for (const auto& [number, count] : kNodeNumbers) {
    if (!sources.variable(number.c_str())) continue;
    if (!count.exists() || sources.variable(count.c_str()) == absl::StrCat(nodes)) return number;
  }
  return {};
}

// Takes the first node of Slurm's node list as the master, because Slurm numbers the nodes of a step in the order of
// this list.
absl::Status ReadMasterOfSlurm(const ArgumentSources& sources, NodeWords* node) {
  constexpr VariableName kHosts = "SLURM_STEP_NODELIST";
  const std::optional<std::string> list = sources.variable(kHosts.c_str());
  if (node->master_address || !list) return absl::OkStatus();
  const auto hosts = SlurmHosts(*list);
  if (!hosts || !IsHostName(hosts->front())) {
    return InvalidVariable(kHosts.view(), *list, "a list of hosts such as n[01-03,7]; or give --master-addr");
  }
  node->master_address = hosts->front();
  return absl::OkStatus();
}

absl::Status ReadNodeNumber(const ArgumentSources& sources, int nodes, NodeWords* node) {
  if (nodes == 1 || node->node_rank) return absl::OkStatus();
  const VariableName name = FindNodeNumber(sources, nodes);
  if (!name.exists()) return absl::OkStatus();
  const std::string text = sources.variable(name.c_str()).value_or("");
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < 0 || number >= nodes) {
    return InvalidVariable(name.view(), text,
                           absl::StrCat("a number below --nnodes, from 0 to ", nodes - 1, "; or give --node-rank"));
  }
  node->node_rank = number;
  return name.view() == kSlurmNode.view() ? ReadMasterOfSlurm(sources, node) : absl::OkStatus();
}

// An MPI launcher may have started one rondarun per node. The ranks would then mistake that launcher for their own.
// They would wait in MPI_Init forever, because the launcher started only one process per node.
void KeepFromMpi(CommandLineDraft* draft) {
  constexpr VariableName kSigns[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  const auto is_set = [&](VariableName name) { return draft->sources->variable(name.c_str()).has_value(); };
  if (is_set("RONDA_MPI") || std::none_of(std::begin(kSigns), std::end(kSigns), is_set)) return;
  draft->options.settings.emplace("RONDA_MPI", "0");
}

absl::Status CheckNodeRank(const NodeWords& node, int nodes) {
  if (!node.node_rank) {
    if (nodes == 1 || node.has_endpoint) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--node-rank is missing: with --nnodes ", nodes,
        " each node needs its number, for example --node-rank 0; srun says it, with one rondarun on each node, and at "
        "--rdzv-endpoint HOST:PORT nodes get one as they come"));
  }
  if (*node.node_rank < nodes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--node-rank takes a number below --nnodes, from 0 to ", nodes - 1,
                                                 "; got \"", *node.node_rank, "\""));
}

// Completes a node's options in a job whose nodes come and go. Any node of such a job may get rank 0.
absl::Status PlaceComingNode(CommandLineDraft* draft) {
  const NodeWords& node = draft->node;
  if (!node.master_address) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rdzv-endpoint is missing: with --nnodes ", *node.nodes, ":", *node.max_nodes,
                     " all nodes meet at one of them, for example --rdzv-endpoint node0:29400"));
  }
  if (node.node_rank) {
    draft->options.notes.emplace_back("--node-rank has no effect: nodes that come and go have no numbers");
  }
  KeepFromMpi(draft);
  return absl::OkStatus();
}

// Completes the options of a node. A single node is an ordinary job on this host, and its ranks need no address.
absl::Status PlaceNode(CommandLineDraft* draft) {
  if (draft->node.max_nodes) return PlaceComingNode(draft);
  RONDA_RETURN_IF_ERROR(ReadAddresses(*draft->sources, &draft->node));
  const NodeWords& node = draft->node;
  const int nodes = node.nodes.value_or(1);
  RONDA_RETURN_IF_ERROR(ReadNodeNumber(*draft->sources, nodes, &draft->node));
  RONDA_RETURN_IF_ERROR(CheckNodeRank(node, nodes));
  if (nodes == 1) return absl::OkStatus();
  KeepFromMpi(draft);
  NodeGroup group{.nodes = nodes, .node_rank = node.node_rank.value_or(0)};
  if (!node.node_rank) group.numbering = NodeGroup::Numbering::kByArrival;
  group.master_address = node.master_address.value_or(group.master_address);
  group.master_port = node.master_port.value_or(group.master_port);
  draft->options.nodes = std::move(group);
  return absl::OkStatus();
}

bool NeedsCommand(Action action) { return action == Action::kRun || action == Action::kDryRun; }

absl::Status CheckSlots(const Allocation& allocation, int ranks) {
  const int slots = CountSlots(allocation.hosts);
  if (ranks <= slots) return absl::OkStatus();
  std::vector<HostSlots> enough = allocation.hosts;
  const int hosts = static_cast<int>(enough.size());
  for (HostSlots& host : enough) host.slots = (ranks + hosts - 1) / hosts;
  return absl::InvalidArgumentError(absl::StrCat(
      ranks, " ranks need as many slots, and ", allocation.scheduler, "'s allocation (", allocation.variable,
      ") offers ", slots, ": allocate more tasks, or say how many ranks each host takes: -H ", FormatHosts(enough)));
}

std::string DescribeAllocation(const Allocation& allocation) {
  const std::vector<HostSlots>& hosts = allocation.hosts;
  const size_t shown = std::min(hosts.size(), kMostHostsShown);
  const std::string more = shown == hosts.size() ? "" : absl::StrCat(" and ", hosts.size() - shown, " more");
  return absl::StrCat("the hosts are those of ", allocation.scheduler, "'s allocation (", allocation.variable,
                      "): ", FormatHosts({hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(shown)}), more,
                      "; -H or --hostfile names others");
}

// Takes the hosts from the scheduler's allocation, unless the user specifies hosts. Without -np, also takes the number
// of ranks from the allocation.
absl::Status ReadAllocation(CommandLineDraft* draft) {
  LaunchOptions& options = draft->options;
  const bool has_hosts = !options.hosts.empty() || !draft->elastic.discovery_script.empty();
  const bool counts_gpus = options.rank_count == 0 && !options.devices.empty();
  if (has_hosts || counts_gpus || SpeaksOfNodes(draft->node)) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(const std::optional<Allocation> allocation, FindAllocation(*draft->sources));
  if (!allocation) return absl::OkStatus();
  const std::vector<HostSlots>& hosts = allocation->hosts;
  // A script with a single host has often requested cores from its scheduler instead of tasks. So -np may be larger
  // than the number of tasks.
  const bool is_this_host = hosts.size() == 1 && IsThisHost(hosts.front().host, draft->sources->own_addresses());
  if (is_this_host && options.rank_count != 0) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(CheckSlots(*allocation, std::max(options.rank_count, draft->elastic.max_ranks.value_or(0))));
  if (options.rank_count == 0 && NeedsCommand(options.action)) options.rank_count = CountSlots(hosts);
  options.hosts = hosts;
  options.notes.push_back(DescribeAllocation(*allocation));
  return absl::OkStatus();
}

absl::Status CountRanks(CommandLineDraft* draft) {
  LaunchOptions& options = draft->options;
  if (options.rank_count != 0) return absl::OkStatus();
  if (draft->node.ranks_per_node) {
    options.rank_count = *draft->node.ranks_per_node;
  } else if (!options.devices.empty() && options.hosts.empty()) {
    options.rank_count = static_cast<int>(options.devices.size());
  } else if (SpeaksOfNodes(draft->node)) {
    options.rank_count = 1;
  } else if (NeedsCommand(options.action)) {
    return absl::InvalidArgumentError("-np is missing: say how many ranks to start, for example -np 2");
  }
  return absl::OkStatus();
}

// Returns the number of ranks on each host that gets ranks.
std::vector<int> RanksOfHosts(const LaunchOptions& options) {
  if (options.hosts.empty()) return {options.rank_count};
  std::vector<int> ranks = FillHosts(options.hosts, options.rank_count);
  ranks.erase(std::remove(ranks.begin(), ranks.end(), 0), ranks.end());
  return ranks;
}

absl::Status CheckHosts(const LaunchOptions& options) {
  const std::vector<int> ranks = RanksOfHosts(options);
  const int most = ranks.empty() ? 0 : *std::max_element(ranks.begin(), ranks.end());
  if (most > kMaxSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("-np takes a number of ranks from 1 to ", kMaxSlots,
                     " on one host; name more with -H, for example -H alpha:512,beta:512; "
                     "got \"",
                     options.rank_count, "\""));
  }
  const int devices = static_cast<int>(options.devices.size());
  if (devices == 0 || most <= devices) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(most, " ranks on a host, but --gpus names ", devices,
                                                 ": give a GPU for each of them, for example -np ", devices,
                                                 " on one host"));
}

bool IsOnSeveralHosts(const CommandLineDraft& draft) {
  const LaunchOptions& options = draft.options;
  return options.nodes.has_value() || draft.node.max_nodes.has_value() || RanksOfHosts(options).size() > 1;
}

// Returns whether this rondarun starts ranks on other hosts.
bool IsStartedElsewhere(const LaunchOptions& options, const ArgumentSources& sources) {
  if (options.nodes || options.hosts.empty()) return false;
  const std::vector<std::string> own = sources.own_addresses();
  const size_t used = RanksOfHosts(options).size();
  return std::any_of(options.hosts.begin(), options.hosts.begin() + static_cast<std::ptrdiff_t>(used),
                     [&](const HostSlots& host) { return !IsThisHost(host.host, own); });
}

// Sets the backend that the options request, if the job has several hosts. On a single host, shared memory is the only
// sensible backend.
void ChooseBackend(CommandLineDraft* draft) {
  if (draft->hierarchical == Choice::kUnsaid || !IsOnSeveralHosts(*draft)) return;
  draft->options.settings["RONDA_BACKEND"] = draft->hierarchical == Choice::kYes ? "hierarchical" : "mpi";
}

absl::Status SetStallTimes(CommandLineDraft* draft) {
  auto& settings = draft->options.settings;
  if (draft->stall_check == Choice::kNo) {
    settings["RONDA_STALL_WARNING"] = "inf";
    settings["RONDA_STALL_DEADLINE"] = "inf";
  }
  const auto warning = settings.find("RONDA_STALL_WARNING");
  const auto deadline = settings.find("RONDA_STALL_DEADLINE");
  if (warning == settings.end() || deadline == settings.end()) return absl::OkStatus();
  absl::Duration warns_after;
  absl::Duration fails_after;
  // The two values may come from -x. If a value is not a duration, the ranks report the error.
  if (!ParseDurationOrSeconds(warning->second, &warns_after) ||
      !ParseDurationOrSeconds(deadline->second, &fails_after)) {
    return absl::OkStatus();
  }
  if (warns_after <= fails_after) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--stall-check-warning-time-seconds is to be no more than --stall-check-shutdown-time-seconds; got ",
                   warning->second, " and ", deadline->second));
}

// Returns the name of a given option that only mpirun supports, or "" if there is none.
std::string MpirunOption(const LaunchOptions& options) {
  if (!options.remote.mpi_arguments.empty()) return "--mpi-args";
  if (!options.remote.binding_arguments.empty()) return "--binding-args";
  if (options.remote.transport == RemoteOptions::Transport::kTcp) return "--tcp";
  return "";
}

absl::Status ChooseLauncher(CommandLineDraft* draft) {
  LaunchOptions& options = draft->options;
  const std::string option = draft->mpi == Choice::kYes ? "--mpi" : MpirunOption(options);
  if (options.launcher == Launcher::kSsh && !option.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        option, " and --launcher ssh do not go together: only mpirun can do that; give --launcher mpirun, or leave ",
        option, " out"));
  }
  const bool is_node = options.nodes.has_value() || draft->node.max_nodes.has_value();
  if (is_node && (options.launcher != Launcher::kAutomatic || draft->mpi == Choice::kYes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        draft->mpi == Choice::kYes ? "--mpi" : "--launcher",
        " and --nnodes do not go together: each node starts its own ranks; give -np and -H to have all ranks started "
        "from here"));
  }
  if (draft->mpi == Choice::kYes) {
    options.launcher = Launcher::kMpirun;
    options.settings["RONDA_MPI"] = "1";
  }
  const bool mpirun = options.launcher == Launcher::kMpirun || IsStartedElsewhere(options, *draft->sources);
  if (!mpirun && !option.empty()) {
    options.notes.push_back(
        absl::StrCat(option, " has no effect: rondarun starts the ranks of one host itself; add --mpi for mpirun"));
  }
  return absl::OkStatus();
}

// Returns the name of a given option that makes sense only in elastic jobs, or "" if there is none.
absl::string_view ElasticDetail(const ElasticWords& elastic) {
  if (elastic.timeout) return "--elastic-timeout";
  if (elastic.reset_limit) return "--reset-limit";
  if (elastic.slots_per_host) return "--slots-per-host";
  return elastic.cooldown ? "--blacklist-cooldown-range" : "";
}

absl::Status CheckElasticRanks(const ElasticOptions& elastic, int ranks) {
  if (elastic.min_ranks <= ranks && ranks <= elastic.max_ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--min-np ", elastic.min_ranks, ", -np ", ranks, " and --max-np ", elastic.max_ranks,
                   " do not go together: a job begins with -np ranks, no fewer than --min-np and no more than "
                   "--max-np"));
}

// Rejects mpirun and its options in an elastic job, because rondarun or its agents start the members of such a job.
absl::Status CheckElasticLauncher(const LaunchOptions& options, absl::string_view elastic_option) {
  const std::string culprit = options.launcher == Launcher::kMpirun ? "--launcher mpirun" : MpirunOption(options);
  if (culprit.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(culprit, " and ", elastic_option,
                   " do not go together: MPI ends all ranks when one dies, so rondarun starts the "
                   "ranks itself, over ssh on other hosts; leave ",
                   culprit, " out"));
}

absl::Status CheckDiscovery(const ElasticWords& words) {
  if (!words.slots_per_host || !words.discovery_script.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--slots-per-host is for the hosts that a --host-discovery-script lists; with -H, give each host its slots");
}

// Sets the elastic options of a job whose nodes come and go. The table of options has already rejected --min-np and
// similar options together with node options.
absl::Status MakeElasticOfNodes(CommandLineDraft* draft) {
  LaunchOptions& options = draft->options;
  const NodeWords& node = draft->node;
  const ElasticWords& words = draft->elastic;
  if (options.max_restarts > 0) {
    return absl::InvalidArgumentError(
        "--max-restarts and --nnodes MIN:MAX do not go together: such a job goes on without the ranks that have died, "
        "and replaces them; leave --max-restarts out");
  }
  if (int64_t{*node.max_nodes} * options.rank_count > kMaxJobSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nnodes ", *node.nodes, ":", *node.max_nodes, ": a job has at most ", kMaxJobSize, " ranks"));
  }
  RONDA_RETURN_IF_ERROR(CheckElasticLauncher(options, "--nnodes"));
  RONDA_RETURN_IF_ERROR(CheckDiscovery(words));
  NodeRange range = {.min_nodes = *node.nodes, .max_nodes = *node.max_nodes, .address = *node.master_address};
  range.port = node.master_port.value_or(range.port);
  ElasticOptions elastic = {.min_ranks = range.min_nodes * options.rank_count,
                            .max_ranks = range.max_nodes * options.rank_count,
                            .reset_limit = words.reset_limit,
                            .cooldown = words.cooldown,
                            .nodes = range};
  if (words.timeout) elastic.timeout = *words.timeout;
  options.elastic = std::move(elastic);
  return absl::OkStatus();
}

absl::Status MakeElastic(CommandLineDraft* draft) {
  if (draft->node.max_nodes) return MakeElasticOfNodes(draft);
  LaunchOptions& options = draft->options;
  const ElasticWords& words = draft->elastic;
  if (!words.min_ranks && !words.max_ranks && words.discovery_script.empty()) {
    const absl::string_view detail = ElasticDetail(words);
    if (detail.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(detail, " is for jobs that go on when ranks die: add for example --min-np 1"));
  }
  ElasticOptions elastic = {.min_ranks = words.min_ranks.value_or(options.rank_count),
                            .max_ranks = words.max_ranks.value_or(options.rank_count),
                            .reset_limit = words.reset_limit,
                            .cooldown = words.cooldown,
                            .discovery_script = words.discovery_script,
                            .slots_per_host = words.slots_per_host.value_or(0)};
  if (words.timeout) elastic.timeout = *words.timeout;
  RONDA_RETURN_IF_ERROR(CheckElasticRanks(elastic, options.rank_count));
  RONDA_RETURN_IF_ERROR(CheckElasticLauncher(options, "--min-np"));
  RONDA_RETURN_IF_ERROR(CheckDiscovery(words));
  LaunchOptions largest = options;
  largest.rank_count = elastic.max_ranks;
  RONDA_RETURN_IF_ERROR(CheckHosts(largest));
  options.elastic = elastic;
  return absl::OkStatus();
}

absl::Status ChooseStreams(CommandLineDraft* draft) {
  const int streams = draft->redirected_streams | draft->copied_streams;
  if (streams == 0) return absl::OkStatus();
  if (draft->options.output_directory.empty()) {
    const absl::string_view option = draft->redirected_streams != 0 ? "--redirects" : "--tee";
    return absl::InvalidArgumentError(
        absl::StrCat(option, " needs a directory to write to: add for example --log-dir logs"));
  }
  const int hidden = draft->redirected_streams & ~draft->copied_streams;
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    if ((hidden & (1 << static_cast<int>(stream))) != 0) draft->options.hidden_streams.push_back(stream);
  }
  return absl::OkStatus();
}

absl::Status CheckCommand(const CommandLineDraft& draft) {
  const std::vector<std::string>& command = draft.options.command;
  if (!NeedsCommand(draft.options.action)) return absl::OkStatus();
  if (command.empty() || command.front().empty()) {
    return absl::InvalidArgumentError("the command is missing: name the program that every rank runs");
  }
  // torchrun and Paddle run a script with their own Python interpreter, but rondarun does not.
  if (SpeaksOfNodes(draft.node) && absl::EndsWith(command.front(), ".py") && !absl::StrContains(command.front(), '/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", command.front(),
                     "\" is a script, and rondarun starts programs: name its interpreter, "
                     "for example python3 ",
                     command.front()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Complete(CommandLineDraft* draft) {
  RONDA_RETURN_IF_ERROR(CheckHostsAndNodes(*draft));
  RONDA_RETURN_IF_ERROR(PlaceNode(draft));
  RONDA_RETURN_IF_ERROR(ReadAllocation(draft));
  RONDA_RETURN_IF_ERROR(CountRanks(draft));
  RONDA_RETURN_IF_ERROR(CheckHosts(draft->options));
  ChooseBackend(draft);
  RONDA_RETURN_IF_ERROR(SetStallTimes(draft));
  RONDA_RETURN_IF_ERROR(ChooseLauncher(draft));
  RONDA_RETURN_IF_ERROR(MakeElastic(draft));
  RONDA_RETURN_IF_ERROR(ChooseStreams(draft));
  return CheckCommand(*draft);
}

}  // namespace ronda
