// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/ssh_plan.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "programs/options/hosts.h"
#include "programs/options/shell_words.h"
#include "programs/rondarun/plan/launch_plan.h"
#include "programs/rondarun/plan/place_variables.h"
#include "programs/rondarun/supervise/agent.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Words = std::vector<std::string>;

// The ranks on one host, and the agent that starts them.
struct HostRanks {
  std::string host;
  std::vector<RankId> ranks;
  std::vector<Words> variables;  // of each rank
  AgentPart* agent = nullptr;
  enum class State { kAbsent, kPresent } state = State::kAbsent;
};

// Collects the hellos of the job's agents. Once the agent on the first host has reported where rank 0 can listen,
// orders the agents that have sent their hellos to start their ranks.
class Rendezvous {
 public:
  Rendezvous(std::vector<HostRanks> hosts, Words common, std::optional<std::string> address)
      : hosts_(std::move(hosts)), common_(std::move(common)), address_(std::move(address)) {}

  std::vector<HostRanks>& hosts() { return hosts_; }

  void OnHello(size_t index, const AgentPart::Hello& hello) {
    hosts_[index].state = HostRanks::State::kPresent;
    if (index != 0) {
      if (is_open_) Start(hosts_[index]);
      return;
    }
    const std::string address = address_.value_or(hello.address);
    common_.push_back(absl::StrCat("RONDA_MASTER_ADDR=", address));
    common_.push_back(absl::StrCat("RONDA_MASTER_PORT=", hello.free_port));
    AddStoreAddress(address, hello.store_port, &common_);
    is_open_ = true;
    for (const HostRanks& host : hosts_) {
      if (host.state == HostRanks::State::kPresent) Start(host);
    }
  }

 private:
  void Start(const HostRanks& host) const { host.agent->StartRanks(common_, host.variables); }

  std::vector<HostRanks> hosts_;
  Words common_;                              // variables of all ranks
  const std::optional<std::string> address_;  // of the first host, if its agent is not asked for it
  bool is_open_ = false;
};

std::vector<HostRanks> RanksByHost(const LaunchPlan& plan) {
  std::vector<HostRanks> hosts;
  for (const RankPlan& rank : plan.ranks) {
    if (hosts.empty() || rank.topology.local_rank == 0) hosts.push_back({.host = rank.topology.hostname});
    hosts.back().ranks.push_back(rank.topology.rank);
    hosts.back().variables.push_back(PlaceVariables(rank.topology, rank.host));
  }
  return hosts;
}

// Returns the variables that ranks get on every host. Adds notes for the user about these variables to `notes`.
Words CommonVariables(const LaunchOptions& options, const LaunchFacts& facts, Words* notes) {
  const std::map<std::string, std::string> settings = SettingsOf(options);
  const Words inherited = InheritedVariables(facts.environment, settings);
  Words common = VariablesForOtherHosts(inherited, settings, options.remote.exports);
  const DefaultVariables defaults = DefaultsFor(options.rank_count, common);
  common.insert(common.end(), defaults.variables.begin(), defaults.variables.end());
  notes->insert(notes->end(), defaults.notes.begin(), defaults.notes.end());
  common.push_back(absl::StrCat("RONDA_JOB_SECRET=", facts.job_secret));
  if (facts.output == LaunchFacts::Output::kTerminal) common.emplace_back("RONDA_OUTPUT_IS_TERMINAL=1");
  return common;
}

// Returns the user's name for the first host, or nullopt if it may refer to different hosts elsewhere, or if the user
// has specified network interfaces.
std::optional<std::string> AddressOf(const std::string& host, const LaunchOptions& options, const LaunchFacts& facts) {
  if (!options.remote.network_interfaces.empty() || IsThisHost(host, facts.own_addresses)) return std::nullopt;
  return host;
}

std::string WorkingDirectory() {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}

absl::StatusOr<LaunchPlan> PlaceRanks(const LaunchOptions& options, const LaunchFacts& facts) {
  PlanRequest request = {.rank_count = options.rank_count, .hosts = options.hosts, .job_id = facts.job_id};
  if (request.hosts.empty()) request.hosts = {{.host = "localhost", .slots = options.rank_count}};
  return MakeLaunchPlan(request);
}

// On this host, the agent is started without ssh.
Words CommandFor(const std::string& host, const LaunchOptions& options, const LaunchFacts& facts) {
  return IsThisHost(host, facts.own_addresses) ? LocalAgentCommand(options, facts.program)
                                               : AgentCommand(options, host, facts.program);
}

AgentPart::Options AgentOptions(const std::string& host, const LaunchOptions& options, const LaunchFacts& facts) {
  return {.process = {.command = CommandFor(host, options, facts),
                      .environment = facts.environment,
                      .input = ChildProcess::Input::kPipe},
          .host = host,
          .directory = WorkingDirectory(),
          .command = options.command,
          .binding = options.binding};
}

// Returns the command of an elastic job's discovery script: the name of a file, or a command line. A path must refer to
// an executable file. A name without a slash is not looked up here, but when the script is run.
absl::StatusOr<Words> DiscoveryCommand(const std::string& script) {
  constexpr absl::string_view kOption = "--host-discovery-script ";
  Words command = {script};
  if (access(script.c_str(), F_OK) != 0) {
    absl::StatusOr<Words> words = SplitShellWords(script);
    if (!words.ok()) return absl::InvalidArgumentError(absl::StrCat(kOption, script, ": ", words.status().message()));
    if (!words->empty()) command = *std::move(words);
  }
  const std::string& program = command.front();
  if (program.find('/') == std::string::npos || access(program.c_str(), X_OK) == 0) return command;
  return absl::NotFoundError(absl::StrCat(kOption, script, ": ",
                                          errno == EACCES ? absl::StrCat(program, " is not executable; chmod +x it")
                                                          : absl::StrCat("there is no ", program)));
}

}  // namespace

std::vector<std::string> LocalAgentCommand(const LaunchOptions& options, absl::string_view program) {
  Words words = {std::string(program), "--agent"};
  if (!options.name.empty()) words.insert(words.end(), {"--name", options.name});
  const std::vector<std::string>& interfaces = options.remote.network_interfaces;
  if (!interfaces.empty()) words.push_back(absl::StrJoin(interfaces, ","));
  return words;
}

std::vector<std::string> RemoteCommand(const RemoteOptions& remote, absl::string_view host,
                                       const std::vector<std::string>& command) {
  const std::string line = absl::StrCat("exec ", ShellQuote(command));
  if (!remote.agent.empty()) return {remote.agent, std::string(host), line};
  // These options make ssh notice when a host is lost, and keep a terminal from changing the output.
  std::vector<std::string> words = {
      "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10"};
  if (remote.ssh_port != 0) words.insert(words.end(), {"-p", absl::StrCat(remote.ssh_port)});
  if (!remote.ssh_identity_file.empty()) words.insert(words.end(), {"-i", remote.ssh_identity_file});
  words.insert(words.end(), {std::string(host), line});
  return words;
}

std::vector<std::string> AgentCommand(const LaunchOptions& options, absl::string_view host, absl::string_view program) {
  return RemoteCommand(options.remote, host, LocalAgentCommand(options, program));
}

absl::StatusOr<JobPlan> PlanSshJob(const LaunchOptions& options, const LaunchFacts& facts) {
  RONDA_ASSIGN_OR_RETURN(const LaunchPlan launch, PlaceRanks(options, facts));
  std::vector<HostRanks> hosts = RanksByHost(launch);
  const std::optional<std::string> address = AddressOf(hosts.front().host, options, facts);
  JobPlan plan;
  const auto rendezvous =
      std::make_shared<Rendezvous>(std::move(hosts), CommonVariables(options, facts, &plan.notes), address);
  plan.rank_count = options.rank_count;
  plan.shutdown.grace = options.grace_period;
  plan.start_timeout = StartTimeoutOf(InheritedVariables(facts.environment, SettingsOf(options)));
  for (size_t i = 0; i < rendezvous->hosts().size(); ++i) {
    HostRanks& host = rendezvous->hosts()[i];
    plan.ranks.insert(plan.ranks.end(), host.ranks.begin(), host.ranks.end());
    plan.commands.push_back(ShellQuote(CommandFor(host.host, options, facts)));
    auto agent =
        std::make_unique<AgentPart>(AgentOptions(host.host, options, facts), host.ranks,
                                    [rendezvous, i](const AgentPart::Hello& hello) { rendezvous->OnHello(i, hello); });
    host.agent = agent.get();
    plan.parts.push_back(std::move(agent));
  }
  plan.explanations = {DescribeJob(options, plan)};
  plan.explanations.insert(plan.explanations.end(), plan.commands.begin(), plan.commands.end());
  return plan;
}

absl::StatusOr<JobPlan> PlanElasticSshJob(const LaunchOptions& asked, const LaunchFacts& facts) {
  LaunchOptions options = WithMeetingTimeout(asked, facts);
  options.rank_count = options.elastic->max_ranks;
  JobPlan plan = BareElasticPlan(asked, facts);
  plan.job_id = facts.job_id;
  ElasticJob::Options& elastic = *plan.elastic;
  if (options.elastic->discovery_script.empty()) {
    RONDA_RETURN_IF_ERROR(PlaceRanks(options, facts).status());
    if (options.hosts.empty()) options.hosts = {{.host = "localhost", .slots = options.rank_count}};
    for (const HostSlots& host : options.hosts) {
      elastic.membership.hosts.push_back({.name = host.host, .slots = host.slots});
      plan.commands.push_back(ShellQuote(CommandFor(host.host, options, facts)));
    }
  } else {
    RONDA_ASSIGN_OR_RETURN(const Words command, DiscoveryCommand(options.elastic->discovery_script));
    elastic.discovery = {
        .command = command, .environment = facts.environment, .slots_per_host = options.elastic->slots_per_host};
    plan.commands.push_back(ShellQuote(command));
  }
  Words common = CommonVariables(options, facts, &plan.notes);
  common.push_back(absl::StrCat("RONDA_JOB_ID=", facts.job_id));
  elastic.describe_host = [options, facts, common](const std::string& host) {
    return AgentHost::Options{.host = host,
                              .make_agent =
                                  [options, facts, host](AgentPart::OnHello on_hello, AgentListener* members) {
                                    AgentPart::Options agent = AgentOptions(host, options, facts);
                                    agent.members = members;
                                    return std::make_unique<AgentPart>(std::move(agent), std::vector<RankId>(),
                                                                       std::move(on_hello));
                                  },
                              .address = AddressOf(host, options, facts),
                              .variables = common,
                              .job_id = facts.job_id,
                              .heartbeat_timeout = HeartbeatTimeoutOf(common)};
  };
  plan.explanations = {DescribeJob(options, plan)};
  plan.explanations.insert(plan.explanations.end(), plan.commands.begin(), plan.commands.end());
  return plan;
}

}  // namespace ronda
