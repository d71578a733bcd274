// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_GRPC_GRPC_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_GRPC_GRPC_CONTROL_PLANE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/grpc/grpc_streams.h"
#include "runtime/control/tree/control_node.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// A gRPC server at which a rank's children reach it. It is started before the ranks know each other, so that its
// address can travel with the membership. Children that come early wait for ConnectGrpcControlPlane.
class ControlListener {
 public:
  // Listens on `endpoint`, whose port may be 0. `plugin`, `callers`: as MessageServer's.
  // Errors: those of MessageServer::Start.
  static absl::StatusOr<std::unique_ptr<ControlListener>> Start(const Endpoint& endpoint, const std::string& plugin,
                                                                MessageServer::Callers callers);

  int port() const { return server_->port(); }
  const Endpoint& endpoint() const { return endpoint_; }
  ControlServer& server() { return *server_; }

 private:
  ControlListener(const Endpoint& endpoint, std::unique_ptr<ControlServer> server)
      : endpoint_(endpoint), server_(std::move(server)) {}

  const Endpoint endpoint_;
  const std::unique_ptr<ControlServer> server_;
};

struct GrpcControlPlaneOptions {
  RankId rank = 0;
  std::vector<Peer> peers;                    // by rank
  std::unique_ptr<ControlListener> listener;  // for a rank that has children
  Endpoint parent;                            // for any rank except 0
  std::string plugin;                         // the path of libronda_hosts.so; empty: the folder of plugins
  std::string job_id;
  // Proves that both ends of a stream belong to the job; may be empty if all ranks are on loopback endpoints.
  std::string secret;
  absl::Duration start_timeout = absl::Seconds(30);  // longest wait for parent and children
  absl::Duration heartbeat = absl::Seconds(1);       // time between signs of life
  // A rank without a sign of life for this long is treated as lost, even if it is only stopped. Infinite if a debugger
  // is used.
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  std::shared_ptr<FlightBoard> flights;  // heartbeats bring the latest events of ranks on other hosts; may be nullptr
  // Called once, by a thread of the control plane, with the job's first failure after the start; may be nullptr.
  // Must not destroy the control plane.
  std::function<void(const absl::Status&)> on_failure;
  int fan_out = kControlFanOut;  // most children of a rank, the same on all ranks
};

// Carries control messages over one gRPC stream from each rank to its parent in the tree; the parent passes on messages
// for others. Reports that wait travel together; equal reports travel once. gRPC's threads relay messages, and a thread
// of the control plane sends and checks signs of life. So neither the trainer nor the background thread has to listen
// so that messages, failures and signs of life pass through a rank.
//
// If a stream breaks without a departure, or a rank gives no sign of life for heartbeat_timeout, the job fails; the
// failure names rank, host and pid. Of several failures, the first that reaches rank 0 becomes the job's: Fail waits
// for rank 0's decision, a few seconds at most. A rank that is cut off from rank 0 has its own failure, which names the
// lost rank on the path to rank 0.
//
// The destructor announces the departure to parent and children. It returns when they have received it, or after a few
// seconds.
//
// Blocks until all ranks have connected to their parents.
// Errors: DEADLINE_EXCEEDED that names the missing ranks; PERMISSION_DENIED if the secret differs; INVALID_ARGUMENT for
// a caller of another job; FAILED_PRECONDITION without a secret beyond loopback; those of LoadHostsPlugin.
absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectGrpcControlPlane(GrpcControlPlaneOptions options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_GRPC_GRPC_CONTROL_PLANE_H_
