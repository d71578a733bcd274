// SPDX-License-Identifier: Apache-2.0

// Nodes that connect by themselves: those of an elastic job (`rondarun --nnodes MIN:MAX`), and those that are numbered
// by arrival.
#ifndef RONDA_PROGRAMS_RONDARUN_NODE_H_
#define RONDA_PROGRAMS_RONDARUN_NODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/elastic/node_connection.h"
#include "programs/rondarun/elastic/node_list.h"

namespace ronda {

// Decides whether this rondarun is the leader of the job: the first rondarun on the host to whose address the nodes
// connect. Returns the list of nodes if it is, or else nullptr. Errors: FAILED_PRECONDITION if other hosts can reach
// the address and there is no secret, or if this process cannot listen on the address. INVALID_ARGUMENT if nodes cannot
// connect to the address. REQUIRES: options.elastic->nodes.
absl::StatusOr<std::shared_ptr<NodeList>> LeadNodes(const LaunchOptions& options);

// Connects this node to the leader. Retries until the leader accepts this node or rejects it for good, or until the
// timeout expires. Meanwhile, prints to stderr what it is waiting for. Errors: DEADLINE_EXCEEDED, with the reason why
// the last attempt failed; those errors of JoinLeader for which a retry is useless. REQUIRES: options.elastic->nodes.
absl::StatusOr<JoinedNode> JoinJob(const LaunchOptions& options);

// Joins the job, and supervises the members on this host until the end. Reports progress on stderr. Returns the exit
// code. REQUIRES: options.elastic->nodes.
int RunNode(const LaunchOptions& options);

// Returns the number of this node once all nodes of its group have connected to the master address. Node 0 is the first
// rondarun that can listen there, on the host with that address. It numbers the other nodes in the order in which they
// connect, and reports each of them on stderr.
//
// REQUIRES: options.nodes is set, and its nodes are numbered by arrival. Errors: DEADLINE_EXCEEDED if not all nodes
// connect within --start-timeout, or ten minutes without this option. FAILED_PRECONDITION if nodes have different
// numbers of ranks, and on the other nodes also if node 0 has given up. UNAVAILABLE if node 0 ends before it has sent
// the numbers. All other errors are the same as for JoinJob.
absl::StatusOr<int> NumberThisNode(const LaunchOptions& options);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_NODE_H_
