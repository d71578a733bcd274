// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_TCP_TCP_MESH_H_
#define RONDA_RUNTIME_TCP_TCP_MESH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/net/endpoint.h"
#include "runtime/point_to_point/point_to_point.h"
#include "runtime/tcp/tcp_handshake.h"
#include "runtime/tcp/tcp_listener.h"

namespace ronda {

// A set of ranks that exchange messages with each other. The messages of different levels are separate.
struct TcpLevel {
  uint32_t number = 0;
  std::vector<RankId> ranks;  // of the job, in any order; the messages number them by position here
  // The ranks with which this rank exchanges messages. If the list is empty, these are all other ranks of the level. If
  // a is a partner of b, b must also be a partner of a.
  std::vector<RankId> partners = {};
};

struct TcpMeshOptions {
  TcpJob job;
  RankId rank = 0;
  std::vector<Peer> peers;                           // by rank
  std::vector<Endpoint> endpoints;                   // by rank: its listener, for the ranks that this one calls
  std::string purpose = "data";                      // of the connections, for messages
  absl::Duration timeout = absl::Seconds(30);        // the longest wait for all others
  absl::Duration caller_timeout = absl::Seconds(5);  // the longest wait for a caller's handshake
  absl::Duration call_timeout = absl::Seconds(5);    // the longest wait for an answer before a call is repeated
  std::function<absl::Status()> job_failure;         // ends the wait; nullptr: nothing does
};

// Connects this rank to its partners in each of `levels`. The rank must be a member of every level. A rank calls those
// partners that have lower ranks. The partners with higher ranks call this rank. The ranks at both ends of a connection
// prove that they know the job's secret (tcp_handshake.h). Callers that fail to prove that they know the secret, or
// that send nothing, are dropped. No rank waits for such callers. A call that fails or gets no answer is repeated until
// the time is over.
//
// Blocks until all connections exist. Returns one PointToPoint for each level, in the order of `levels`. Errors:
// DEADLINE_EXCEEDED that names the missing ranks, with the reason if it is known; the job's failure; RESOURCE_EXHAUSTED
// if the process may not open enough sockets.
absl::StatusOr<std::vector<std::unique_ptr<PointToPoint>>> ConnectTcp(const TcpListener& listener,
                                                                      const TcpMeshOptions& options,
                                                                      const std::vector<TcpLevel>& levels);

// Like ConnectTcp, but for a single level. If some connections fail, still returns the connections that exist.
struct TcpPartners {
  std::unique_ptr<PointToPoint> messages;
  std::vector<RankId> absent;  // partners without a connection
  absl::Status absence;        // why
};
TcpPartners ConnectTcpPartners(const TcpListener* listener, const TcpMeshOptions& options, const TcpLevel& level);

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_MESH_H_
