// SPDX-License-Identifier: Apache-2.0

// Makes the TCP connection between a node and the leader of its job. Both ends prove that they know the secret
// (node_handshake.h). After these proofs the connection carries an agent's messages (agent.h).
#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_CONNECTION_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_CONNECTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/elastic/node_handshake.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// Accepts the next caller, without waiting for it.
struct NodeCall {
  UniqueFd socket;      // never blocks
  std::string address;  // of the caller, numeric
};
// Errors: UNAVAILABLE if no caller waits, or the caller has left; RESOURCE_EXHAUSTED if this process has no free
// descriptor.
absl::StatusOr<NodeCall> AcceptNode(int listener);

// The result of joining a job as a node.
struct JoinedNode {
  UniqueFd socket;   // blocks
  std::string name;  // in the job
};

// Connects to the leader, and introduces this node to it. Returns at `deadline` at the latest.
// Errors: UNAVAILABLE and DEADLINE_EXCEEDED if no leader answers now, RESOURCE_EXHAUSTED if the job has no room now.
// After these errors a later attempt may succeed. PERMISSION_DENIED, INVALID_ARGUMENT and FAILED_PRECONDITION if the
// leader, or another program at its address, refuses this node.
absl::StatusOr<JoinedNode> JoinLeader(const Endpoint& endpoint, const std::string& secret, const NodeHello& hello,
                                      absl::Time deadline);

// `rondarun --relay FD`: passes bytes between a node's socket and its own stdin and stdout, until one side ends. So the
// launcher can treat a node as a process, like an agent behind ssh. Returns the exit code, which is 0 if the input has
// ended.
int RunNodeRelay(absl::string_view fd);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_CONNECTION_H_
