// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/node_plan.h"

#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/options/shell_words.h"
#include "programs/rondarun/elastic/agent_host.h"
#include "programs/rondarun/plan/launch_plan.h"
#include "programs/rondarun/plan/ssh_plan.h"
#include "programs/rondarun/supervise/agent.h"

namespace ronda {
namespace {

constexpr absl::string_view kSecret = "RONDA_JOB_SECRET";

std::string WorkingDirectory() {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}

// Returns the options for the agent on the leader's own host. It gets its command and its working directory from the
// leader.
AgentPart::Options LocalAgent(const LaunchOptions& options, const LaunchFacts& facts) {
  return {.process = {.command = LocalAgentCommand(options, facts.program),
                      .environment = facts.environment,
                      .input = ChildProcess::Input::kPipe},
          .host = facts.hostname,
          .directory = WorkingDirectory(),
          .command = options.command,
          .binding = options.binding};
}

// Returns the options for a node on another host. The node itself is the agent, and knows its own command and working
// directory.
AgentPart::Options RemoteAgent(const std::string& host, const LaunchFacts& facts) {
  const int socket = facts.nodes->HandOver(host);
  return {.process = {.command = {facts.program, "--relay", absl::StrCat(socket)},
                      .environment = facts.environment,
                      .input = ChildProcess::Input::kPipe,
                      .inherited_fds = {socket}},
          .host = host};
}

AgentHost::Options DescribeHost(const std::string& host, const LaunchOptions& options, const LaunchFacts& facts) {
  const bool is_own = host == facts.hostname;
  const std::vector<std::string> own = VariablesOfNode(options, facts.environment, facts.job_id);
  AgentHost::Options described = {.host = host, .job_id = facts.job_id};
  described.make_agent = [=](AgentPart::OnHello on_hello, AgentListener* members) {
    AgentPart::Options agent = is_own ? LocalAgent(options, facts) : RemoteAgent(host, facts);
    agent.members = members;
    return std::make_unique<AgentPart>(std::move(agent), std::vector<RankId>(), std::move(on_hello));
  };
  if (is_own) described.variables = own;
  // The addresses of all nodes are known: other nodes have reached this host at its own address, and the address of
  // each other node is known from its connection.
  if (options.remote.network_interfaces.empty() && facts.nodes != nullptr) {
    described.address = is_own ? facts.nodes->own_address() : facts.nodes->AddressOf(host);
  }
  described.heartbeat_timeout = HeartbeatTimeoutOf(InheritedVariables(facts.environment, SettingsOf(options)));
  return described;
}

}  // namespace

std::string SecretOfNodes(const LaunchOptions& options, const std::vector<std::string>& environment) {
  const auto set = options.settings.find(std::string(kSecret));
  if (set != options.settings.end()) return set->second;
  for (const std::string& variable : environment) {
    if (NameOf(variable) == kSecret) return variable.substr(kSecret.size() + 1);
  }
  return "";
}

std::vector<std::string> VariablesOfNode(const LaunchOptions& options, const std::vector<std::string>& environment,
                                         const std::string& job_id) {
  LaunchFacts facts;
  facts.environment = environment;
  const std::map<std::string, std::string> settings = SettingsOf(WithMeetingTimeout(options, facts));
  std::vector<std::string> variables;
  for (const auto& [name, value] : settings) variables.push_back(absl::StrCat(name, "=", value));
  const DefaultVariables defaults = DefaultsFor(options.rank_count, InheritedVariables(environment, settings));
  variables.insert(variables.end(), defaults.variables.begin(), defaults.variables.end());
  const std::string secret = SecretOfNodes(options, environment);
  if (!secret.empty()) variables.push_back(absl::StrCat(kSecret, "=", secret));
  variables.push_back(absl::StrCat("RONDA_JOB_ID=", job_id));
  return variables;
}

JobPlan PlanNodesJob(const LaunchOptions& options, const LaunchFacts& facts) {
  LaunchOptions smallest = options;
  smallest.rank_count = options.elastic->min_ranks;
  JobPlan plan = BareElasticPlan(smallest, facts);
  plan.job_id = facts.job_id;
  ElasticJob::Options& elastic = *plan.elastic;
  // The first epoch includes all members that join before it begins.
  elastic.membership.initial_members = options.elastic->max_ranks;
  elastic.membership.hosts = {{.name = facts.hostname, .slots = options.rank_count}};
  elastic.nodes = facts.nodes;
  elastic.describe_host = [options, facts](const std::string& host) { return DescribeHost(host, options, facts); };
  plan.notes = DefaultsFor(options.rank_count, InheritedVariables(facts.environment, SettingsOf(options))).notes;
  plan.commands = {ShellQuote(LocalAgentCommand(options, facts.program))};
  plan.explanations = {DescribeJob(options, plan), plan.commands.front()};
  return plan;
}

}  // namespace ronda
