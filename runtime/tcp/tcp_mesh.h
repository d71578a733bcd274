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

// A set of ranks that exchange messages with each other, separately from other levels.
struct TcpLevel {
  uint32_t number = 0;
  std::vector<RankId> ranks;  // of the job, in any order; in messages, ranks are numbered by their position here
  // The ranks with which this rank exchanges messages; empty: all other ranks of the level. If a is a partner of b, b
  // must be a partner of a.
  std::vector<RankId> partners = {};
};

struct TcpMeshOptions {
  TcpJob job;
  RankId rank = 0;
  std::vector<Peer> peers;                           // by rank
  std::vector<Endpoint> endpoints;                   // by rank: its listener; only for the ranks that this rank calls
  std::string purpose = "data";                      // of the connections, for messages
  absl::Duration timeout = absl::Seconds(30);        // longest wait for all partners
  absl::Duration caller_timeout = absl::Seconds(5);  // longest wait for a caller's handshake
  absl::Duration call_timeout = absl::Seconds(5);    // longest wait for an answer before a call is retried
  std::function<absl::Status()> job_failure;         // an error ends the wait; nullptr: none
};

// Connects this rank to its partners in each of `levels`, all of which must contain it. This rank calls its
// lower-ranked partners, and its higher-ranked partners call it. Both ends of a connection prove that they know the
// job's secret (tcp_handshake.h). Drops callers that fail to do so, or that send nothing, without waiting for them.
// Until `timeout`, retries calls that fail or get no answer.
//
// Blocks until all connections exist. Returns one PointToPoint per level, in the order of `levels`. Errors:
// DEADLINE_EXCEEDED that names the missing ranks and, if known, the reason; the job's failure; RESOURCE_EXHAUSTED if
// the process cannot open enough sockets.
absl::StatusOr<std::vector<std::unique_ptr<PointToPoint>>> ConnectTcp(const TcpListener& listener,
                                                                      const TcpMeshOptions& options,
                                                                      const std::vector<TcpLevel>& levels);

// Like ConnectTcp(), but for a single level, and returns the existing connections even if others fail.
struct TcpPartners {
  std::unique_ptr<PointToPoint> messages;
  std::vector<RankId> absent;  // partners without a connection
  absl::Status absence;        // why
};
TcpPartners ConnectTcpPartners(const TcpListener* listener, const TcpMeshOptions& options, const TcpLevel& level);

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_MESH_H_
