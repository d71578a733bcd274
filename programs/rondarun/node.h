// SPDX-License-Identifier: Apache-2.0

// Nodes that come by themselves: the nodes of an elastic job (`rondarun --nnodes MIN:MAX`), and nodes that are numbered
// by arrival.
#ifndef RONDA_PROGRAMS_RONDARUN_NODE_H_
#define RONDA_PROGRAMS_RONDARUN_NODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/elastic/node_connection.h"
#include "programs/rondarun/elastic/node_list.h"

namespace ronda {

// Decides whether this rondarun leads the job. It leads if it is the first rondarun on the host to which the nodes
// connect. Returns the list of the nodes if this rondarun leads; nullptr if it does not.
// Errors: FAILED_PRECONDITION if other hosts can reach the address and there is no secret, or if this process cannot
// listen at the address; INVALID_ARGUMENT if nodes cannot connect to that address.
// REQUIRES: options.elastic->nodes.
absl::StatusOr<std::shared_ptr<NodeList>> LeadNodes(const LaunchOptions& options);

// Joins the leader. Tries until the leader accepts this node, or refuses it for good, or the timeout is over. Reports
// on stderr what it waits for.
// Errors: DEADLINE_EXCEEDED with the reason of the last attempt; the errors of JoinLeader that a later attempt cannot
// avoid.
// REQUIRES: options.elastic->nodes.
absl::StatusOr<JoinedNode> JoinJob(const LaunchOptions& options);

// Joins the job, and looks after the members on this host until the end. Reports its steps on stderr. Returns the exit
// code.
// REQUIRES: options.elastic->nodes.
int RunNode(const LaunchOptions& options);

// Returns the number of this node, once all nodes of its group have connected to the master's address. The first
// rondarun that can listen there, on the host that has the address, is node 0. It numbers the other nodes in the order
// in which they come, and reports each node on standard error.
//
// REQUIRES: options.nodes is set, and its nodes are numbered in the order in which they come.
// Errors: DEADLINE_EXCEEDED if not all nodes come within --start-timeout, or within ten minutes without that option.
// FAILED_PRECONDITION if nodes have different numbers of ranks. UNAVAILABLE if node 0 ends before it has sent the
// numbers. Other errors are those of JoinJob.
absl::StatusOr<int> NumberThisNode(const LaunchOptions& options);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_NODE_H_
