// SPDX-License-Identifier: Apache-2.0

// Establishes the TCP connection between a node and the leader of its job. Both ends prove that they know the secret
// (node_handshake.h). Then the connection carries an agent's messages (agent.h).
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

// Accepts the next caller. Returns at once if none has connected.
struct NodeCall {
  UniqueFd socket;      // never blocks
  std::string address;  // of the caller, numeric
};
// Errors: UNAVAILABLE if no caller is waiting, or if the caller has left; RESOURCE_EXHAUSTED if this process has no
// free descriptor.
absl::StatusOr<NodeCall> AcceptNode(int listener);

// The result of joining a job as a node.
struct JoinedNode {
  UniqueFd socket;   // blocks
  std::string name;  // in the job
};

// Connects to the leader, and sends it a description of this node. Returns at `deadline` at the latest. Errors:
// UNAVAILABLE and DEADLINE_EXCEEDED if no leader answers now, RESOURCE_EXHAUSTED if the job has no room now. After
// these errors, a later attempt may succeed. PERMISSION_DENIED, INVALID_ARGUMENT and FAILED_PRECONDITION if the leader,
// or another program at its address, rejects this node.
absl::StatusOr<JoinedNode> JoinLeader(const Endpoint& endpoint, const std::string& secret, const NodeHello& hello,
                                      absl::Time deadline);

// Implements `rondarun --relay FD`: forwards bytes between a node's socket and this process's stdin and stdout, until
// either side ends. The relay lets the launcher treat a node as a process, like an agent behind ssh. Returns the exit
// code, which is 0 if the input has ended.
int RunNodeRelay(absl::string_view fd);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_CONNECTION_H_
