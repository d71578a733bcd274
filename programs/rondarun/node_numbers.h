// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_NODE_NUMBERS_H_
#define RONDA_PROGRAMS_RONDARUN_NODE_NUMBERS_H_

#include "absl/status/statusor.h"
#include "programs/options/launch_options.h"

namespace ronda {

// Returns the number of this node, after all nodes of its group have connected to the master's address. On the host
// with this address, the first rondarun that can listen there is node 0. Node 0 numbers the other nodes in the order in
// which they connect, and reports each node on standard error.
//
// REQUIRES: options.nodes is set, with kByArrival.
// Errors: DEADLINE_EXCEEDED if not all nodes come within --start-timeout, or within ten minutes without that option.
// FAILED_PRECONDITION if nodes have different numbers of ranks. UNAVAILABLE if node 0 ends before it has sent the
// numbers. All other errors are those of JoinJob.
absl::StatusOr<int> NumberThisNode(const LaunchOptions& options);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_NODE_NUMBERS_H_
