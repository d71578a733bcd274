#ifndef RONDA_RUNTIME_TCP_TCP_MESH_H_
#define RONDA_RUNTIME_TCP_TCP_MESH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/collectives/messages/point_to_point.h"
#include "runtime/control/rendezvous/endpoint.h"
#include "runtime/tcp/tcp_handshake.h"
#include "runtime/tcp/tcp_listener.h"

namespace ronda {

// Ranks that exchange messages, each with each, apart from those of any other level.
struct TcpLevel {
  uint32_t number = 0;
  std::vector<RankId> ranks;  // of the job, in any order; the messages number them by their place here
};

struct TcpMeshOptions {
  TcpJob job;
  RankId rank = 0;
  std::vector<Peer> peers;                                    // by rank
  std::vector<Endpoint> endpoints;                            // by rank: where each listens
  absl::Duration timeout = absl::Seconds(30);                 // longest wait for all others
  absl::Duration caller_timeout = absl::Seconds(5);  // how long a caller may take to say who it is
  absl::Duration call_timeout = absl::Seconds(5);    // how long a call may lead to nothing before the next
  std::function<absl::Status()> job_failure;                  // ends the wait
};

// Connects this rank, on each of `levels`, of which it is a member, with all others there: a rank calls those with
// lower numbers, and is called by those with higher ones. Every connection proves that both ends know the job's secret
// (tcp_handshake.h). A caller that does not is dropped, and so is who says nothing; none of them is waited for. A call
// that fails, or leads to nothing for a while, is made again until the time is over.
//
// Blocks until all connections are there; returns the levels' messages in their order.
// Errors: DEADLINE_EXCEEDED that names who is missing, and why where that is known; the job's failure;
// RESOURCE_EXHAUSTED if the process may not open so many sockets.
absl::StatusOr<std::vector<std::unique_ptr<PointToPoint>>> ConnectTcp(const TcpListener& listener,
                                                                      const TcpMeshOptions& options,
                                                                      const std::vector<TcpLevel>& levels);

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_MESH_H_
