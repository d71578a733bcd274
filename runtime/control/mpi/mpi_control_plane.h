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
#include "runtime/collectives/messages/point_to_point.h"
#include "runtime/control/control_plane.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Most children of a rank: 5 ranks are rank 0 and its children, 85 are three levels below it. A level costs a message
// each way; a child costs its parent a look whenever that looks for messages.
inline constexpr int kMpiControlFanOut = 4;

struct MpiControlPlaneOptions {
  RankId rank = 0;
  std::vector<Peer> peers;                 // by rank
  std::unique_ptr<PointToPoint> messages;  // between all ranks of the job, for the control plane alone
  std::string job_id;
  absl::Duration start_timeout = absl::Seconds(30);  // longest wait for parent and children
  absl::Duration heartbeat = absl::Seconds(1);       // time between signs of life
  // Without a sign of life for so long a rank counts as lost, also one that is stopped; infinite where a debugger is
  // used.
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  std::shared_ptr<FlightBoard> flights;  // heartbeats bring the latest events of ranks on other hosts; may be nullptr
  // Called once, by a thread of the control plane, with the job's first failure after the start, when no more calls are
  // made to `messages`; may be nullptr. Must not destroy the control plane.
  std::function<void(const absl::Status&)> on_failure;
  // Called before the control plane lets go of `messages` without the library being done with all that it was given:
  // it must not be called any more. May be nullptr.
  std::function<void()> abandon_messages;
  int fan_out = kMpiControlFanOut;  // most children of a rank, the same on all ranks
};

// Control messages over MPI, or any other PointToPoint: from each rank to its parent in a tree, which passes on
// messages for others. Reports reach rank 0 in as many steps as the tree is high; equal ones that wait at a rank go on
// as one, so that a cached round of the negotiation is a small reduction. No rank connects to another in any other way.
//
// A message library wakes no thread: messages are polled for. A rank in Wait does so itself: without a pause for a
// tenth of a millisecond after something has moved, then with naps of an eighth of the time that nothing has, up to 1
// ms; Wake ends a nap. When nothing has moved for 20 ms, or the rank is not in Wait but in a collective, or computes, a
// thread of the control plane looks every millisecond: so that calls to leave a schedule, failures and signs of life
// pass through a rank at any time. An idle rank takes 1.6 % of a core that way. The control plane over gRPC takes
// 0.1 %, and notices a death at once; this one is for jobs whose ranks cannot reach each other but through MPI, or
// whose fabric is much faster than TCP.
//
// A rank that gives no sign of life for heartbeat_timeout is the job's failure, named with host and pid. Of several
// failures the first that rank 0 hears of counts, as over gRPC (grpc_control_plane.h).
//
// When this rank knows of the job's failure it tells its neighbours, for a second at most, and makes no more calls to
// the library: only then failure() and the calls that return it say so. So a caller that learns of a failure from here
// may free the buffers of an abandoned collective.
//
// Blocks until all ranks have connected to their parents.
// Errors: DEADLINE_EXCEEDED that names the missing ranks; INVALID_ARGUMENT for a caller of another job; the library's.
absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectMpiControlPlane(MpiControlPlaneOptions options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MPI_MPI_CONTROL_PLANE_H_
