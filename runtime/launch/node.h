// Nodes that come by themselves: those of an elastic job, `rondarun --nnodes MIN:MAX`, and those that get their numbers
// by arrival (node_numbers.h).
#ifndef RONDA_RUNTIME_LAUNCH_NODE_H_
#define RONDA_RUNTIME_LAUNCH_NODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/launch/elastic/node_connection.h"
#include "runtime/launch/elastic/node_list.h"
#include "runtime/launch/options/launch_options.h"

namespace ronda {

// The list of the nodes, if this rondarun is to lead the job: it is on the host where nodes meet, and the first there.
// nullptr if it is to be one of the other nodes.
// Errors: FAILED_PRECONDITION if there is no secret, and other hosts can reach the address, or if it cannot be listened
// at; INVALID_ARGUMENT if nodes cannot meet at that address.
// REQUIRES: options.elastic->nodes.
absl::StatusOr<std::shared_ptr<NodeList>> LeadNodes(const LaunchOptions& options);

// Joins the leader. Tries until it takes this node, or says that it never will, or the timeout is over; says on stderr
// what it waits for.
// Errors: DEADLINE_EXCEEDED with the reason of the last try; those of JoinLeader that a later try cannot mend.
// REQUIRES: options.elastic->nodes.
absl::StatusOr<JoinedNode> JoinJob(const LaunchOptions& options);

// Joins the job, and looks after the members on this host until the end. Says on stderr what it does. Returns the exit
// code.
// REQUIRES: options.elastic->nodes.
int RunNode(const LaunchOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_NODE_H_
