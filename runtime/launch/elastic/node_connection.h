// The connection between a node and the leader of its job: TCP, whose ends have proved themselves (node_handshake.h),
// and which carries the messages of an agent (agent.h) from then on.
#ifndef RONDA_RUNTIME_LAUNCH_ELASTIC_NODE_CONNECTION_H_
#define RONDA_RUNTIME_LAUNCH_ELASTIC_NODE_CONNECTION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"
#include "runtime/launch/elastic/node_handshake.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// Takes the next caller, which is never waited for.
struct NodeCall {
  UniqueFd socket;      // never blocks
  std::string address;  // of the caller, numeric
};
// Errors: UNAVAILABLE if there is none, or none any more; RESOURCE_EXHAUSTED if this process has no descriptor left.
absl::StatusOr<NodeCall> AcceptNode(int listener);

// A node that is part of the job.
struct JoinedNode {
  UniqueFd socket;   // blocks
  std::string name;  // in the job
};

// Connects to the leader, and introduces this node to it. Returns at `deadline` at the latest.
// Errors: UNAVAILABLE and DEADLINE_EXCEEDED if no leader answers now, RESOURCE_EXHAUSTED if the job has no room now: a
// later try may succeed. PERMISSION_DENIED, INVALID_ARGUMENT and FAILED_PRECONDITION if the leader, or what is in its
// place, will not take this node.
absl::StatusOr<JoinedNode> JoinLeader(const Endpoint& endpoint, const std::string& secret, const NodeHello& hello,
                                      absl::Time deadline);

// `rondarun --relay FD`: passes bytes between the socket of a node, and stdin and stdout, until one side ends. So the
// launcher sees a node as it sees an agent behind ssh: as a process. Returns the exit code: 0 if its input has ended.
int RunNodeRelay(absl::string_view fd);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ELASTIC_NODE_CONNECTION_H_
