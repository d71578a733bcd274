// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/node_numbers.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/elastic/node_connection.h"
#include "programs/rondarun/elastic/node_list.h"
#include "programs/rondarun/job_runner.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/node.h"
#include "programs/rondarun/plan/job_plan.h"
#include "programs/rondarun/plan/launch_plan.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Hosts = std::vector<JobMembership::Host>;

// Node 0 gives up this much earlier than the other nodes, so that it can still send the other nodes the reason.
constexpr absl::Duration kMargin = absl::Seconds(10);

// Returns how long the nodes wait for each other.
absl::Duration TimeoutOf(const LaunchOptions& options) {
  const std::vector<std::string> variables = InheritedVariables(ProcessVariables(), SettingsOf(options));
  return ContainsName(variables, "RONDA_START_TIMEOUT") ? StartTimeoutOf(variables) : ElasticOptions().timeout;
}

// Converts the options of a job with a fixed number of nodes to those of an elastic job whose nodes connect by
// themselves. The code that gathers the nodes of an elastic job can then gather these nodes.
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

// The numbering of ranks assumes that all nodes have the same number of ranks.
absl::Status CheckRanks(const Hosts& hosts) {
  for (const JobMembership::Host& host : hosts) {
    if (host.slots == hosts.front().slots) continue;
    return absl::FailedPreconditionError(absl::StrCat("--nproc-per-node is ", hosts.front().slots, " on node ",
                                                      hosts.front().name, ", and ", host.slots, " on node ", host.name,
                                                      ": give the same on all nodes"));
  }
  return absl::OkStatus();
}

// Waits until all nodes have come.
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

// Returns the first message that node 0 sends.
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
