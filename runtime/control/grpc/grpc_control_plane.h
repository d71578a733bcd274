#ifndef RONDA_RUNTIME_CONTROL_GRPC_GRPC_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_GRPC_GRPC_CONTROL_PLANE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/rendezvous/endpoint.h"
#include "runtime/monitor/flight_board.h"

namespace ronda {

// Ranks form a tree in which rank r's parent is (r - 1) / kControlFanOut: up to 65 ranks are rank 0 and its children.
inline constexpr int kControlFanOut = 64;
inline RankId ControlParent(RankId rank) { return (rank - 1) / kControlFanOut; }
inline bool HasControlChildren(RankId rank, int size) { return rank * kControlFanOut + 1 < size; }

// Where a rank's children reach it: a gRPC server that is started before the ranks know of each other, so that its
// address can travel with the membership.
class ControlListener {
 public:
  // Listens on `endpoint`, whose port may be 0.
  // Errors: as RendezvousServer::Start.
  static absl::StatusOr<std::unique_ptr<ControlListener>> Start(const Endpoint& endpoint);
  virtual ~ControlListener() = default;
  virtual int port() const = 0;
};

struct GrpcControlPlaneOptions {
  RankId rank = 0;
  std::vector<Peer> peers;                    // by rank
  std::unique_ptr<ControlListener> listener;  // of a rank that has children
  Endpoint parent;                            // of any rank but 0
  std::string job_id;
  std::string secret;                                    // proves that both ends of a stream belong to the job
  absl::Duration start_timeout = absl::Seconds(30);      // longest wait for parent and children
  absl::Duration heartbeat = absl::Seconds(1);           // time between signs of life
  absl::Duration heartbeat_timeout = absl::Seconds(10);  // without one a rank counts as lost
  std::shared_ptr<FlightBoard> flights;                  // heartbeats bring the last act of ranks on other hosts
  // Called once, by a thread of the control plane, with the job's first failure; nullptr: nobody.
  std::function<void(const absl::Status&)> on_failure;
};

// Control messages over one gRPC stream from each rank to its parent in the tree, which passes on what is not for it.
// Reports that arrive together travel on together, equal ones once. gRPC's threads relay and watch: neither the trainer
// nor the coordinator thread has to listen for messages, failures and signs of life to pass through a rank.
//
// A stream that breaks without a farewell, or a rank that gives no sign of life for heartbeat_timeout, is the job's
// failure and names rank, host and pid.
//
// Blocks until parent and children have connected.
// Errors: DEADLINE_EXCEEDED that names who is missing; PERMISSION_DENIED with another secret; those of the listener.
absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectGrpcControlPlane(GrpcControlPlaneOptions options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_GRPC_GRPC_CONTROL_PLANE_H_
