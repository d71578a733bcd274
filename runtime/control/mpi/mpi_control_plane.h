// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MPI_MPI_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_MPI_MPI_CONTROL_PLANE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/control/control_plane.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// Maximum number of children per rank. With 4, the tree of 5 ranks has one level below rank 0, and that of 85 ranks has
// three. A level costs a message each way; a child costs its parent a look whenever the parent looks for messages.
inline constexpr int kMpiControlFanOut = 4;

struct MpiControlPlaneOptions {
  RankId rank = 0;
  std::vector<Peer> peers;                 // by rank
  std::unique_ptr<PointToPoint> messages;  // between all ranks of the job; only the control plane uses it
  std::string job_id;
  absl::Duration start_timeout = absl::Seconds(30);  // longest wait for parent and children
  absl::Duration heartbeat = absl::Seconds(1);       // time between signs of life
  // A rank without a sign of life for this long is treated as lost, even if it is only stopped. Infinite if a debugger
  // is used.
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  std::shared_ptr<FlightBoard> flights;  // heartbeats bring the latest events of ranks on other hosts; may be nullptr
  // Called once, by a thread of the control plane, with the job's first failure after the start, when no more calls are
  // made to `messages`; may be nullptr. Must not destroy the control plane.
  std::function<void(const absl::Status&)> on_failure;
  // Called if the control plane releases `messages` before the library has finished everything that it was given: then
  // the library must not be called any more. May be nullptr.
  std::function<void()> abandon_messages;
  int fan_out = kMpiControlFanOut;  // most children of a rank, the same on all ranks
};

// Carries control messages over MPI, or any other PointToPoint: from each rank to its parent in a tree, which passes on
// messages for others. Reports reach rank 0 in as many steps as the tree has levels. Equal reports that wait at a rank
// continue as one, so a cached round of the negotiation is a small reduction. No rank connects to another in any other
// way.
//
// A message library wakes no thread, so messages are polled for. A rank in Wait polls itself. It polls without a pause
// for a tenth of a millisecond after a movement. After that it sleeps between polls, for an eighth of the time since
// the last movement, up to 1 ms; Wake ends such a sleep. A thread of the control plane looks every millisecond in the
// other cases: when nothing has moved for 20 ms, or when the rank is not in Wait but in a collective, or computes. So
// calls to leave a schedule, failures and signs of life pass through a rank at any time. An idle rank uses 1.6 % of a
// core in this way. The control plane over gRPC uses 0.1 %, and notices a death at once. This one is for jobs whose
// ranks can reach each other only through MPI, or whose fabric is much faster than TCP.
//
// If a rank gives no sign of life for heartbeat_timeout, the job fails; the failure names rank, host and pid. Of
// several failures, the first that reaches rank 0 becomes the job's, as over gRPC (grpc_control_plane.h).
//
// When this rank knows of the job's failure it notifies its neighbours, for a second at most, and then makes no more
// calls to the library. Only then failure() and the calls that return it report the failure. So a caller that learns of
// a failure from here may free the buffers of an abandoned collective.
//
// Blocks until all ranks have connected to their parents.
// Errors: DEADLINE_EXCEEDED that names the missing ranks; INVALID_ARGUMENT for a caller of another job; the library's.
absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectMpiControlPlane(MpiControlPlaneOptions options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MPI_MPI_CONTROL_PLANE_H_
