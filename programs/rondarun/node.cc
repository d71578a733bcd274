// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/node.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "programs/options/hosts.h"
#include "programs/options/local_host.h"
#include "programs/rondarun/job_runner.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/plan/job_plan.h"
#include "programs/rondarun/plan/launch_plan.h"
#include "programs/rondarun/plan/node_plan.h"
#include "programs/rondarun/remote_agent.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/poll_set.h"
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

// How long an attempt to join may take, including the connection and the whole handshake.
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

// Returns the addresses on which the leader may listen. Errors: those of ResolveEndpoint, BeyondLoopback and
// CheckSecret.
absl::StatusOr<std::vector<Endpoint>> AddressesOfLeader(const LaunchOptions& options, const std::string& secret) {
  const NodeRange& range = *options.elastic->nodes;
  RONDA_ASSIGN_OR_RETURN(Endpoint endpoint, ResolveEndpoint(range.address, range.port));
  absl::StatusOr<Endpoint> reachable = BeyondLoopback(std::move(endpoint), options.remote.network_interfaces);
  // Unlike a host that cannot be found yet, a wrong interface name stays wrong, so the caller must not retry.
  if (absl::IsNotFound(reachable.status())) return absl::InvalidArgumentError(reachable.status().message());
  RONDA_ASSIGN_OR_RETURN(endpoint, std::move(reachable));
  RONDA_RETURN_IF_ERROR(CheckSecret(endpoint, secret));
  return ByAddress(endpoint);
}

absl::StatusOr<JoinedNode> TryToJoin(const LaunchOptions& options, const std::string& secret, absl::Time deadline) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<Endpoint> addresses, AddressesOfLeader(options, secret));
  const NodeHello hello = {.version = kVersion, .name = HostName(), .slots = options.rank_count};
  absl::StatusOr<JoinedNode> node;
  for (const Endpoint& address : addresses) {
    node = JoinLeader(address, secret, hello, std::min(deadline, SteadyNow() + kTryTimeout));
    if (node.ok() || !MayTryAgain(node.status())) break;
  }
  return node;
}

// Reports how the job, or this node's part in it, has ended. Returns the exit code.
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
  const std::string secret = SecretOfNodes(options, ProcessVariables());
  const absl::StatusOr<std::vector<Endpoint>> addresses = AddressesOfLeader(options, secret);
  // A name that cannot be resolved yet is not the name of this host.
  if (absl::IsNotFound(addresses.status())) return nullptr;
  RONDA_RETURN_IF_ERROR(addresses.status());
  const auto endpoint =
      absl::c_find_if(*addresses, [](const Endpoint& each) { return IsThisHost(each.address, OwnAddresses()); });
  if (endpoint == addresses->end()) return nullptr;
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
    auto node = TryToJoin(options, secret, deadline);
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

namespace {

using Hosts = std::vector<JobMembership::Host>;

// Node 0 gives up this much earlier than the other nodes, so that it can tell them the reason.
constexpr absl::Duration kMargin = absl::Seconds(10);

// Returns how long the nodes wait for each other.
absl::Duration TimeoutOf(const LaunchOptions& options) {
  const std::vector<std::string> variables = InheritedVariables(ProcessVariables(), SettingsOf(options));
  return ContainsName(variables, "RONDA_START_TIMEOUT") ? StartTimeoutOf(variables) : ElasticOptions().timeout;
}

// Converts the options of a job with a fixed number of nodes to the options of an elastic job whose nodes connect by
// themselves. The same code then gathers the nodes of both kinds of jobs.
LaunchOptions AsComingNodes(const LaunchOptions& options) {
  const NodeGroup& group = *options.nodes;
  LaunchOptions coming = options;
  coming.elastic = ElasticOptions{.timeout = TimeoutOf(options),
                                  .nodes = NodeRange{.min_nodes = group.nodes,
                                                     .max_nodes = group.nodes,
                                                     .address = group.master_address,
                                                     .port = group.master_port,
                                                     .timeout_option = "--start-timeout"}};
  return coming;
}

// Ranks can be numbered only if all nodes have the same number of ranks.
absl::Status CheckRanks(const Hosts& hosts) {
  for (const JobMembership::Host& host : hosts) {
    if (host.slots == hosts.front().slots) continue;
    return absl::FailedPreconditionError(absl::StrCat("--nproc-per-node is ", hosts.front().slots, " on node ",
                                                      hosts.front().name, ", and ", host.slots, " on node ", host.name,
                                                      ": give the same on all nodes"));
  }
  return absl::OkStatus();
}

// Waits until all nodes have connected.
absl::Status GatherNodes(const LaunchOptions& coming, NodeList* list) {
  const int wanted = coming.nodes->nodes;
  const absl::Duration timeout = coming.elastic->timeout;
  const absl::Time deadline = SteadyNow() + timeout;
  while (list->count() < wanted && SteadyNow() < deadline) {
    PollSet poll;
    list->AddTo(&poll);
    RONDA_RETURN_IF_ERROR(poll.Wait(std::min(deadline, list->deadline()) - SteadyNow()));
    list->OnTime();
  }
  if (list->count() == wanted) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(list->count(), " of ", wanted, " nodes have come within ",
                                                  absl::FormatDuration(timeout), " (--start-timeout)"));
}

absl::Status NumberOthers(const LaunchOptions& coming, NodeList* list) {
  Hosts hosts;
  list->Begin({.on_hosts = [&](const Hosts& now) { hosts = now; },
               .on_shortage = [](const std::string&) {},  // these nodes do not wait for slots
               .say = PrintError});
  absl::Status status = GatherNodes(coming, list);
  if (status.ok()) status = CheckRanks(hosts);
  if (status.ok()) {
    list->SendNumbers();
  } else {
    list->Conclude(kLauncherError, status.message());
  }
  return status;
}

// Returns node 0's first message.
absl::StatusOr<AgentMessage> AwaitMessage(int socket, absl::Time deadline) {
  AgentMessageReader reader(AgentMessageReader::Stream::kMessages);
  std::optional<AgentMessage> first;
  while (!first) {
    if (SteadyNow() >= deadline) return absl::DeadlineExceededError("node 0 has given no sign of life");
    bool is_ready = false;
    PollSet poll;
    poll.Add(socket, POLLIN, [&] { is_ready = true; });
    RONDA_RETURN_IF_ERROR(poll.Wait(deadline - SteadyNow()));
    if (!is_ready) continue;
    std::array<char, 4096> buffer;
    const ssize_t count = recv(socket, buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError("node 0 has gone before all nodes had come");
    RONDA_RETURN_IF_ERROR(reader.Feed({buffer.data(), static_cast<size_t>(count)},
                                      [&](AgentMessage message) { first = std::move(message); }));
  }
  return *std::move(first);
}

absl::StatusOr<int> AwaitNumber(const LaunchOptions& coming, int socket) {
  RONDA_ASSIGN_OR_RETURN(const AgentMessage message,
                         AwaitMessage(socket, SteadyNow() + coming.elastic->timeout + kMargin));
  if (message.kind == AgentMessage::Kind::kEnd) return absl::FailedPreconditionError(message.text(0));
  const int64_t number = message.number(0);
  if (message.kind != AgentMessage::Kind::kNodeNumber || number < 1 || number >= coming.nodes->nodes) {
    return absl::InternalError("node 0 has sent what makes no sense");
  }
  return static_cast<int>(number);
}

}  // namespace

absl::StatusOr<int> NumberThisNode(const LaunchOptions& options) {
  const LaunchOptions coming = AsComingNodes(options);
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<NodeList> list, LeadNodes(coming));
  if (list != nullptr) {
    RONDA_RETURN_IF_ERROR(NumberOthers(coming, list.get()));
    return 0;
  }
  RONDA_ASSIGN_OR_RETURN(const JoinedNode node, JoinJob(coming));
  RONDA_ASSIGN_OR_RETURN(const int number, AwaitNumber(coming, node.socket.get()));
  PrintError(absl::StrCat("this is node ", number, " of ", coming.nodes->nodes));
  return number;
}

}  // namespace ronda
