// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/node.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "programs/options/hosts.h"
#include "programs/options/local_host.h"
#include "programs/rondarun/elastic/node_connection.h"
#include "programs/rondarun/job_runner.h"
#include "programs/rondarun/plan/node_plan.h"
#include "programs/rondarun/remote_agent.h"
#include "programs/rondarun/supervise/supervisor.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/sockets.h"

namespace ronda {
namespace {

// One attempt to join may take this time, for the connection and all messages of the handshake.
constexpr absl::Duration kTryTimeout = absl::Seconds(15);
constexpr absl::Duration kPause = absl::Milliseconds(500);

std::string LeaderOf(const NodeRange& range) {
  const bool is_ipv6 = absl::StrContains(range.address, ':');
  return is_ipv6 ? absl::StrCat("[", range.address, "]:", range.port) : absl::StrCat(range.address, ":", range.port);
}

bool MayTryAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status);
}

absl::StatusOr<JoinedNode> TryToJoin(const LaunchOptions& options, const std::string& secret, absl::Time deadline) {
  const NodeRange& range = *options.elastic->nodes;
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, ResolveEndpoint(range.address, range.port));
  RONDA_RETURN_IF_ERROR(CheckSecret(endpoint, secret));
  return JoinLeader(endpoint, secret, {.version = kVersion, .name = HostName(), .slots = options.rank_count}, deadline);
}

// Prints how the job, or the part of this node in the job, has ended. Returns the exit code.
int Conclude(const AgentEnd& end, const std::string& leader) {
  if (end.ended_by.has_value()) {
    PrintError(absl::StrCat(DescribeInterruption(*end.ended_by), "; this node has left the job"));
    return 128 + *end.ended_by;
  }
  if (!end.job.has_value()) {
    const bool is_silent = end.launcher == AgentEnd::Launcher::kSilent;
    PrintError(absl::StrCat("the leader of the job at ", leader,
                            is_silent ? " has given no sign of life" : " is gone, or has given this node up",
                            "; the members on this node were ended"));
    return kLauncherError;
  }
  if (end.job->exit_code == 0) {
    PrintError("the job has ended well");
    return 0;
  }
  PrintError(absl::StrCat("the job has failed: ", end.job->why));
  return std::clamp(end.job->exit_code, 1, 255);
}

}  // namespace

absl::StatusOr<std::shared_ptr<NodeList>> LeadNodes(const LaunchOptions& options) {
  const ElasticOptions& elastic = *options.elastic;
  const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint(elastic.nodes->address, elastic.nodes->port);
  // If no address can be found for the name yet, it is not the name of this host.
  if (absl::IsNotFound(endpoint.status())) return nullptr;
  RONDA_RETURN_IF_ERROR(endpoint.status());
  const std::string secret = SecretOfNodes(options, ProcessVariables());
  RONDA_RETURN_IF_ERROR(CheckSecret(*endpoint, secret));
  if (!IsThisHost(endpoint->address, OwnAddresses())) return nullptr;
  absl::StatusOr<UniqueFd> listener = ListenAt(*endpoint);
  if (absl::IsAlreadyExists(listener.status())) return nullptr;
  RONDA_RETURN_IF_ERROR(listener.status());
  NodeList::Options list = {.secret = secret,
                            .own = {.name = HostName(), .slots = options.rank_count},
                            .max_nodes = elastic.nodes->max_nodes,
                            .min_slots = elastic.min_ranks,
                            .endpoint = *endpoint,
                            .timeout = elastic.timeout};
  return std::make_shared<NodeList>(std::move(list), *std::move(listener));
}

absl::StatusOr<JoinedNode> JoinJob(const LaunchOptions& options) {
  const absl::Duration timeout = options.elastic->timeout;
  const absl::Time deadline = SteadyNow() + timeout;
  const std::string leader = LeaderOf(*options.elastic->nodes);
  const std::string secret = SecretOfNodes(options, ProcessVariables());
  std::string said;
  while (true) {
    auto node = TryToJoin(options, secret, std::min(deadline, SteadyNow() + kTryTimeout));
    if (node.ok()) return node;
    const std::string why(node.status().message());
    if (!MayTryAgain(node.status())) {
      return absl::Status(node.status().code(), absl::StrCat("cannot join the job at ", leader, ": ", why));
    }
    if (SteadyNow() + kPause >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("could not join the job at ", leader, " within ",
                                                      absl::FormatDuration(timeout), " (",
                                                      options.elastic->nodes->timeout_option, "): ", why));
    }
    if (why != said) PrintError(absl::StrCat("the job at ", leader, " cannot be joined yet (", why, "); trying again"));
    said = why;
    absl::SleepFor(kPause);
  }
}

int RunNode(const LaunchOptions& options) {
  const std::string leader = LeaderOf(*options.elastic->nodes);
  auto node = JoinJob(options);
  if (!node.ok()) {
    PrintError(node.status().message());
    return kLauncherError;
  }
  PrintError(absl::StrCat("this is node ", node->name, " of the job at ", leader,
                          ", where the output of its members is shown"));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) dup2(node->socket.get(), fd);
  node->socket.Reset();
  const auto end = RunAgentLoop(
      {.network_interfaces = options.remote.network_interfaces, .grace_period = options.grace_period, .own = &options});
  if (end.ok()) return Conclude(*end, leader);
  PrintError(end.status().message());
  return kLauncherError;
}

}  // namespace ronda
