// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/job_plan.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "programs/options/hosts.h"
#include "programs/options/shell_words.h"
#include "programs/rondarun/elastic/member_processes.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/plan/launch_plan.h"
#include "programs/rondarun/plan/mpirun_command.h"
#include "programs/rondarun/plan/node_plan.h"
#include "programs/rondarun/plan/place_variables.h"
#include "programs/rondarun/plan/ssh_plan.h"
#include "programs/rondarun/supervise/mpirun_part.h"
#include "programs/rondarun/supervise/supervisor.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/endpoint.h"

namespace ronda {
namespace {

using Launcher = LaunchOptions::Launcher;

// When mpirun ends the ranks, it waits for its grace period twice, and exits some time after the last rank.
constexpr absl::Duration kMpirunMargin = absl::Seconds(5);

// Open MPI's parameter for the networks between mpirun and its daemons on the hosts.
constexpr absl::string_view kOpenMpiControlNetwork = "oob_tcp_if_include";

std::string ValueOf(const std::vector<std::string>& environment, absl::string_view name) {
  for (const std::string& variable : environment) {
    if (NameOf(variable) == name) return variable.substr(name.size() + 1);
  }
  return "";
}

PlanRequest LocalRequest(const LaunchOptions& options, const LaunchFacts& facts) {
  PlanRequest request{.rank_count = options.rank_count,
                      .hosts = options.hosts,
                      .nodes = options.nodes,
                      .job_id = facts.job_id,
                      .job_secret = facts.job_secret,
                      .free_port = facts.free_port,
                      .store_port = facts.store_port,
                      .output_is_terminal = facts.output == LaunchFacts::Output::kTerminal,
                      .environment = facts.environment,
                      .settings = SettingsOf(options)};
  if (request.hosts.empty() || options.nodes) request.hosts = {{.host = "localhost", .slots = options.rank_count}};
  if (options.nodes) request.job_secret = ValueOf(facts.environment, "RONDA_JOB_SECRET");
  return request;
}

// `number` is the number of the rank or member. Only the process with number 0 reads the launcher's input.
ChildProcess::Options ProcessOf(int number, const RankPlan& rank, const LaunchOptions& options,
                                const LaunchFacts& facts) {
  using Input = ChildProcess::Input;
  const Topology& place = rank.topology;
  return {.command = options.command,
          .environment = rank.environment,
          .words_before = options.words_before,
          .input = number == kCoordinatorRank ? Input::kTerminal : Input::kNone,
          .inherited_fds = facts.summary_file < 0 ? std::vector<int>() : std::vector<int>{facts.summary_file},
          .cpus = CpusOfRank(facts.cores, options.binding, place.local_rank, place.local_size)};
}

std::unique_ptr<JobPart> MakeRank(const RankPlan& rank, const LaunchOptions& options, const LaunchFacts& facts) {
  const RankId number = rank.topology.rank;
  return std::make_unique<RankPart>(number, facts.hostname, ProcessOf(number, rank, options, facts));
}

int MostRanksOnAHost(const LaunchPlan& plan) {
  int most = 0;
  for (const RankPlan& rank : plan.ranks) most = std::max(most, rank.topology.local_size);
  return most;
}

// Plans a job whose ranks are all children of this process.
absl::StatusOr<JobPlan> PlanLocalJob(const LaunchOptions& options, const LaunchFacts& facts) {
  RONDA_ASSIGN_OR_RETURN(const LaunchPlan launch, MakeLaunchPlan(LocalRequest(options, facts)));
  RONDA_RETURN_IF_ERROR(CheckBinding(facts.cores, options.binding, MostRanksOnAHost(launch)));
  JobPlan plan;
  if (!options.nodes) plan.job_id = facts.job_id;
  plan.rank_count = launch.ranks.front().topology.size;
  plan.shutdown.grace = options.grace_period;
  for (const RankPlan& rank : launch.ranks) {
    plan.ranks.push_back(rank.topology.rank);
    plan.commands.push_back(DescribeProcess(rank.environment, facts.environment, options.command));
    plan.parts.push_back(MakeRank(rank, options, facts));
  }
  plan.explanations.push_back(DescribeJob(options, plan));
  plan.notes = launch.notes;
  return plan;
}

// Plans an elastic job whose members all run on this host.
absl::StatusOr<JobPlan> PlanElasticJob(const LaunchOptions& asked, const LaunchFacts& facts) {
  LaunchOptions options = WithMeetingTimeout(asked, facts);
  options.rank_count = options.elastic->max_ranks;
  PlanRequest request = LocalRequest(options, facts);
  request.places = PlanRequest::Places::kSlots;
  RONDA_ASSIGN_OR_RETURN(const LaunchPlan launch, MakeLaunchPlan(request));
  RONDA_RETURN_IF_ERROR(CheckBinding(facts.cores, options.binding, MostRanksOnAHost(launch)));
  JobPlan plan = BareElasticPlan(asked, facts);
  plan.job_id = facts.job_id;
  for (const RankId member : plan.ranks) {
    plan.commands.push_back(
        DescribeProcess(launch.ranks[static_cast<size_t>(member)].environment, facts.environment, options.command));
  }
  plan.notes = launch.notes;
  plan.explanations.push_back(DescribeJob(options, plan));
  plan.elastic->membership.hosts = {{.name = facts.hostname, .slots = options.rank_count}};
  plan.elastic->make_member = [options, facts, launch](const JobMembership::StartMember& start, int membership_fd) {
    ChildProcess::Options process =
        ProcessOf(start.member, launch.ranks[static_cast<size_t>(start.slot)], options, facts);
    GiveMembership(membership_fd, &process);
    return std::make_unique<RankPart>(start.member, facts.hostname, std::move(process));
  };
  return plan;
}

std::vector<std::string> NamesOf(const std::vector<std::string>& variables) {
  std::vector<std::string> names;
  names.reserve(variables.size());
  for (const std::string& variable : variables) names.emplace_back(NameOf(variable));
  return names;
}

// Returns the host of each rank, in rank order.
std::vector<std::string> HostsOfRanks(const LaunchOptions& options, const std::string& hostname) {
  if (options.hosts.empty()) return std::vector<std::string>(static_cast<size_t>(options.rank_count), hostname);
  std::vector<std::string> hosts;
  std::vector<int> counts = FillHosts(options.hosts, options.rank_count);
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  for (size_t i = 0; i < counts.size(); ++i) {
    hosts.insert(hosts.end(), static_cast<size_t>(counts[i]), options.hosts[i].host);
  }
  return hosts;
}

bool AreAllThisHost(const std::vector<HostSlots>& hosts, const LaunchFacts& facts) {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const HostSlots& host) { return IsThisHost(host.host, facts.own_addresses); });
}

// Returns the name or address at which all ranks can reach the host of rank 0. The store's port is known to be free
// only on this host.
std::string HostOfStore(const LaunchOptions& options, const LaunchFacts& facts) {
  if (AreAllThisHost(options.hosts, facts)) return "127.0.0.1";
  const std::string& first = options.hosts.front().host;
  return IsThisHost(first, facts.own_addresses) ? facts.hostname : first;
}

// Returns the number of consecutive ranks on each host, or 0 if hosts have different numbers, or if the user may have
// told mpirun where to place ranks.
int RanksPerHost(const LaunchOptions& options) {
  const std::vector<int> counts = FillHosts(options.hosts, options.rank_count);
  if (counts.size() <= 1) return options.rank_count;
  const RemoteOptions& remote = options.remote;
  const bool are_alike = std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<int>()) == counts.end();
  return are_alike && remote.mpi_arguments.empty() && remote.binding_arguments.empty() ? counts.front() : 0;
}

MpirunRequest RequestOf(const LaunchOptions& options, const LaunchFacts& facts, Mpirun mpirun,
                        const std::vector<std::string>& variables) {
  return {.mpirun = mpirun,
          .user = facts.user == LaunchFacts::User::kRoot ? MpirunRequest::User::kRoot : MpirunRequest::User::kOther,
          .rank_count = options.rank_count,
          .hosts = options.hosts,
          .remote = options.remote,
          .binding = options.binding,
          .grace_period = options.grace_period,
          .variables = NamesOf(VariablesForOtherHosts(variables, SettingsOf(options), options.remote.exports)),
          .command = options.command,
          .ranks_per_host = RanksPerHost(options)};
}

// Returns OK if this host has one of the `wanted` interfaces. In the error text, `machine` is what the host is called,
// and `remedy` follows the list of its interfaces.
absl::Status CheckInterfaces(const std::vector<std::string>& wanted, const LaunchFacts& facts,
                             absl::string_view machine, absl::string_view remedy) {
  const bool has_one = std::any_of(facts.interfaces.begin(), facts.interfaces.end(), [&](const InterfaceAddress& own) {
    return std::find(wanted.begin(), wanted.end(), own.interface) != wanted.end();
  });
  if (wanted.empty() || has_one) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--network-interfaces ", absl::StrJoin(wanted, ","), ": ", machine, " has ",
                   wanted.size() == 1 ? "no such interface that is up" : "none of these interfaces, or they are down",
                   "; ", ListInterfaces(facts.interfaces), "; name one", remedy));
}

// If this host lacked the interfaces that the user names, mpirun would wait forever for the other hosts to connect.
absl::Status CheckInterfacesOfMpirun(const RemoteOptions& remote, const LaunchFacts& facts) {
  const bool is_users_choice = std::find(remote.mpi_arguments.begin(), remote.mpi_arguments.end(),
                                         kOpenMpiControlNetwork) != remote.mpi_arguments.end();
  if (is_users_choice) return absl::OkStatus();
  return CheckInterfaces(remote.network_interfaces, facts, "this machine, to which all hosts must connect,",
                         absl::StrCat(" that leads to the hosts, or their network: --mpi-args \"--mca ",
                                      kOpenMpiControlNetwork, " 10.0.0.0/24\""));
}

// Returns whether the options show that ranks will run on this host.
bool HasRanksHere(const LaunchOptions& options, const LaunchFacts& facts) {
  if (options.elastic && !options.elastic->discovery_script.empty()) return false;
  const std::vector<HostSlots>& hosts = options.hosts;
  return hosts.empty() || std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& host) {
           return IsThisHost(host.host, facts.own_addresses);
         });
}

absl::Status CheckInterfacesOfRanks(const LaunchOptions& options, const LaunchFacts& facts) {
  if (!HasRanksHere(options, facts)) return absl::OkStatus();
  return CheckInterfaces(options.remote.network_interfaces, facts, "this host", " of them");
}

// Returns whether the user has told mpirun to write the ranks' output elsewhere. If so, the launcher cannot see that
// the ranks start.
bool HidesOutput(const std::vector<std::string>& mpi_arguments) {
  constexpr absl::string_view kSigns[] = {"output-filename", "outfile-pattern", "errfile-pattern", "xml", "xterm"};
  return std::any_of(mpi_arguments.begin(), mpi_arguments.end(), [&](absl::string_view word) {
    return std::any_of(std::begin(kSigns), std::end(kSigns), [&](absl::string_view sign) {
      return absl::StartsWith(word, "-") && absl::EndsWith(word, sign);
    });
  });
}

// Returns whether shells pass all of these variables ("NAME=value") on to the commands that they run. Some shells drop
// variables whose names they do not accept, such as functions that bash exports.
bool PassShells(const std::vector<std::string>& variables) {
  return std::all_of(variables.begin(), variables.end(), [](absl::string_view variable) {
    const absl::string_view name = variable.substr(0, variable.find('='));
    return !name.empty() && !absl::ascii_isdigit(name.front()) &&
           std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
  });
}

// Plans a job whose ranks are all started by mpirun.
absl::StatusOr<JobPlan> PlanMpirunJob(const LaunchOptions& options, const LaunchFacts& facts) {
  const std::vector<std::string> hosts = HostsOfRanks(options, facts.hostname);
  if (static_cast<int>(hosts.size()) != options.rank_count)
    return MakeLaunchPlan(LocalRequest(options, facts)).status();
  RONDA_RETURN_IF_ERROR(CheckInterfacesOfMpirun(options.remote, facts));
  RONDA_ASSIGN_OR_RETURN(const std::string version, MpirunVersion());
  RONDA_ASSIGN_OR_RETURN(const Mpirun mpirun, DetectMpirun(version));
  std::vector<std::string> variables = InheritedVariables(facts.environment, SettingsOf(options));
  DefaultVariables defaults = DefaultsFor(options.rank_count, variables);
  variables.insert(variables.end(), defaults.variables.begin(), defaults.variables.end());
  if (facts.output == LaunchFacts::Output::kTerminal) variables.emplace_back("RONDA_OUTPUT_IS_TERMINAL=1");
  AddStoreAddress(HostOfStore(options, facts), facts.store_port, &variables);
  // The ranks name their shared memory after this id, so that the launcher can find the memory that killed ranks leave
  // on this host.
  variables.push_back(absl::StrCat("RONDA_JOB_ID=", facts.job_id));
  MpirunRequest request = RequestOf(options, facts, mpirun, variables);
  const bool is_marked = PassShells(variables) && PassShells(facts.environment);
  if (!is_marked) request.lead = MpirunRequest::Lead::kNone;
  RONDA_ASSIGN_OR_RETURN(const MpirunCommand command, MakeMpirunCommand(request));
  variables.insert(variables.end(), command.environment.begin(), command.environment.end());
  JobPlan plan;
  plan.notes = std::move(defaults.notes);
  plan.job_id = facts.job_id;
  plan.rank_count = options.rank_count;
  plan.shutdown.grace = 2 * options.grace_period + kMpirunMargin;
  if (is_marked && !HidesOutput(options.remote.mpi_arguments)) plan.start_timeout = StartTimeoutOf(variables);
  for (RankId rank = 0; rank < options.rank_count; ++rank) plan.ranks.push_back(rank);
  plan.commands.push_back(DescribeProcess(variables, facts.environment, command.argv));
  if (!is_marked) {
    plan.notes.emplace_back(
        "the environment has variables that a shell may drop, such as functions that bash has exported: ranks get "
        "RANK, WORLD_SIZE and their companions when they join the job, and not before");
  }
  plan.explanations = {DescribeJob(options, plan), plan.commands.front()};
  // Open MPI's mpirun reads from a terminal only while its own process group is in the foreground, so rank 0 would wait
  // for input forever.
  plan.parts.push_back(std::make_unique<MpirunPart>(
      ChildProcess::Options{.command = command.argv,
                            .environment = std::move(variables),
                            .input = ChildProcess::Input::kNoTerminal,
                            .at_launcher_death = ChildProcess::AtLauncherDeath::kTerminate},
      hosts));
  return plan;
}

bool NeedsOtherHosts(const LaunchOptions& options, const LaunchFacts& facts) {
  return !options.nodes && !AreAllThisHost(options.hosts, facts);
}

// Returns why mpirun cannot start ranks on other hosts, if the user leaves the choice of the launcher open. Returns ""
// if there is no such reason. Also returns "" if mpirun fails, because PlanMpirunJob returns that error.
std::string ReasonAgainstMpirun(const LaunchOptions& options, const LaunchFacts& facts) {
  const RemoteOptions& remote = options.remote;
  const bool is_open = options.launcher == Launcher::kAutomatic && remote.mpi_arguments.empty() &&
                       remote.binding_arguments.empty() && remote.transport == RemoteOptions::Transport::kAny;
  if (!is_open) return "";
  const absl::StatusOr<std::string> version = MpirunVersion();
  if (absl::IsNotFound(version.status())) return "there is no mpirun in PATH";
  const absl::StatusOr<Mpirun> mpirun = version.ok() ? DetectMpirun(*version) : version.status();
  if (!mpirun.ok()) return "";
  const std::vector<std::string> variables = InheritedVariables(facts.environment, SettingsOf(options));
  if (facts.find_mpi_plugin(*mpirun, ValueOf(variables, "RONDA_MPI_PLUGIN")).ok()) return "";
  return absl::StrCat("there is no plugin of Ronda's for ", ShortMpiVersion(*version),
                      " (rondarun --check-build says why)");
}

// Rejects variables that set a rank's place, because two ranks could then have the same number.
absl::Status CheckExports(const LaunchOptions& options) {
  for (const auto& [name, value] : options.settings) {
    if (!IsPlaceVariable(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("-x ", name, "=", value, ": rondarun itself tells each rank its place by this variable; leave -x ",
                     name, " out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobPlan> PlanJobOnOtherHosts(const LaunchOptions& options, const LaunchFacts& facts) {
  const std::string reason = ReasonAgainstMpirun(options, facts);
  if (reason.empty()) return PlanMpirunJob(options, facts);
  RONDA_RETURN_IF_ERROR(CheckInterfacesOfRanks(options, facts));
  RONDA_ASSIGN_OR_RETURN(JobPlan plan, PlanSshJob(options, facts));
  plan.notes.push_back(absl::StrCat(reason, ": the ranks are started over ssh, and exchange data over TCP"));
  return plan;
}

// Plans ranks that rondarun itself starts: on this host, or through agents on other hosts.
absl::StatusOr<JobPlan> PlanOwnRanks(const LaunchOptions& options, const LaunchFacts& facts) {
  RONDA_RETURN_IF_ERROR(CheckInterfacesOfRanks(options, facts));
  if (options.elastic && options.elastic->nodes) return PlanNodesJob(options, facts);
  if (options.elastic) {
    const bool needs_agents = options.launcher == Launcher::kSsh || !options.elastic->discovery_script.empty() ||
                              NeedsOtherHosts(options, facts);
    return needs_agents ? PlanElasticSshJob(options, facts) : PlanElasticJob(options, facts);
  }
  return options.launcher == Launcher::kSsh ? PlanSshJob(options, facts) : PlanLocalJob(options, facts);
}

absl::StatusOr<JobPlan> PlanRanks(const LaunchOptions& options, const LaunchFacts& facts) {
  if (options.elastic || options.nodes) return PlanOwnRanks(options, facts);
  if (options.launcher == Launcher::kMpirun) return PlanMpirunJob(options, facts);
  const bool is_open = options.launcher == Launcher::kAutomatic && NeedsOtherHosts(options, facts);
  return is_open ? PlanJobOnOtherHosts(options, facts) : PlanOwnRanks(options, facts);
}

// Adds ronda-monitor to the plan. If the job's id is not known here, the monitor shows all jobs of the user.
void AddMonitor(const LaunchFacts& facts, int port, JobPlan* plan) {
  std::vector<std::string> command = {facts.monitor, "--wait", "--port", absl::StrCat(port)};
  if (!plan->job_id.empty()) command.push_back(plan->job_id);
  plan->commands.push_back(DescribeProcess(facts.environment, facts.environment, command));
  plan->parts.push_back(std::make_unique<CompanionPart>(
      "ronda-monitor", ChildProcess::Options{.command = command, .environment = facts.environment}));
}

}  // namespace

LaunchOptions WithMeetingTimeout(LaunchOptions options, const LaunchFacts& facts) {
  constexpr char kStartTimeout[] = "RONDA_START_TIMEOUT";
  const bool is_set = ContainsName(facts.environment, kStartTimeout) || options.settings.contains(kStartTimeout);
  if (!is_set) options.settings[kStartTimeout] = "10s";
  return options;
}

JobPlan BareElasticPlan(const LaunchOptions& options, const LaunchFacts& facts) {
  const ElasticOptions& elastic = *options.elastic;
  JobMembership::Options membership = {
      .initial_members = options.rank_count,
      .min_members = elastic.min_ranks,
      .max_members = elastic.max_ranks,
      .start_timeout = StartTimeoutOf(InheritedVariables(facts.environment, SettingsOf(options))),
      .meeting_timeout =
          StartTimeoutOf(InheritedVariables(facts.environment, SettingsOf(WithMeetingTimeout(options, facts)))),
      .elastic_timeout = elastic.timeout,
      .reset_limit = elastic.reset_limit};
  if (elastic.cooldown.has_value()) {
    std::tie(membership.min_cooldown, membership.max_cooldown) = *elastic.cooldown;
    // A host counts the failed starts of all its members, so its cooldown must be at least as long as that of a slot.
    membership.min_host_cooldown = std::max(membership.min_host_cooldown, membership.min_cooldown);
    membership.max_host_cooldown = std::max(membership.max_host_cooldown, membership.max_cooldown);
  }
  JobPlan plan;
  plan.rank_count = options.rank_count;
  plan.shutdown.grace = options.grace_period;
  for (RankId member = 0; member < options.rank_count; ++member) plan.ranks.push_back(member);
  plan.elastic = ElasticJob::Options{.membership = std::move(membership)};
  return plan;
}

std::map<std::string, std::string> SettingsOf(const LaunchOptions& options) {
  std::map<std::string, std::string> settings = options.settings;
  if (!options.devices.empty()) settings["CUDA_VISIBLE_DEVICES"] = absl::StrJoin(options.devices, ",");
  return settings;
}

std::string DescribeProcess(const std::vector<std::string>& variables, const std::vector<std::string>& inherited,
                            const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& variable : variables) {
    if (std::find(inherited.begin(), inherited.end(), variable) != inherited.end()) continue;
    const absl::string_view name = NameOf(variable);
    words.push_back(name == "RONDA_JOB_SECRET" ? absl::StrCat(name, "=...")
                                               : absl::StrCat(name, "=", ShellQuote(variable.substr(name.size() + 1))));
  }
  words.push_back(ShellQuote(command));
  return absl::StrJoin(words, " ");
}

std::string DescribeJob(const LaunchOptions& options, const JobPlan& plan) {
  return absl::StrCat("job ", plan.job_id, plan.job_id.empty() ? "" : ": ", plan.ranks.size(),
                      plan.ranks.size() == 1 ? " rank" : " ranks", " of ", absl::StrJoin(options.command, " "));
}

absl::StatusOr<JobPlan> MakeJobPlan(const LaunchOptions& options, const LaunchFacts& facts) {
  RONDA_RETURN_IF_ERROR(CheckExports(options));
  RONDA_ASSIGN_OR_RETURN(JobPlan plan, PlanRanks(options, facts));
  if (options.monitor_port.has_value()) AddMonitor(facts, *options.monitor_port, &plan);
  return plan;
}

}  // namespace ronda
