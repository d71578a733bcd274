// One of the nodes of an elastic job that come and go: `rondarun --nnodes MIN:MAX`.
#ifndef RONDA_RUNTIME_LAUNCH_NODE_H_
#define RONDA_RUNTIME_LAUNCH_NODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/launch/elastic/node_list.h"
#include "runtime/launch/options/launch_options.h"

namespace ronda {

// The list of the nodes, if this rondarun is to lead the job: it is on the host where nodes meet, and the first there.
// nullptr if it is to be one of the other nodes.
// Errors: FAILED_PRECONDITION if there is no secret, and other hosts can reach the address, or if it cannot be listened
// at; INVALID_ARGUMENT if nodes cannot meet at that address.
// REQUIRES: options.elastic->nodes.
absl::StatusOr<std::shared_ptr<NodeList>> LeadNodes(const LaunchOptions& options);

// Joins the job, and looks after the members on this host until the end. Says on stderr what it does. Returns the exit
// code.
// REQUIRES: options.elastic->nodes.
int RunNode(const LaunchOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_NODE_H_
