// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MESSAGES_MESSAGE_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_MESSAGES_MESSAGE_CONTROL_PLANE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/messages/poll_limit.h"
#include "runtime/control/tree/control_node.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// Maximum number of children per rank over MPI. With 4, the tree of 5 ranks has one level below rank 0, and the tree of
// 85 ranks has three. A level costs a message each way. A child costs its parent a look whenever the parent looks for
// messages. Over TCP the kernel looks for messages, so the maximum there is kControlFanOut.
inline constexpr int kMpiControlFanOut = 4;

struct MessageControlPlaneOptions {
  RankId rank = 0;
  std::vector<Peer> peers;                 // by rank
  std::unique_ptr<PointToPoint> messages;  // between neighbours in the tree; only the control plane uses it
  // The neighbours that `messages` do not reach, and why. The job then fails with this reason, which the control plane
  // passes on to the ranks that it reaches.
  std::vector<RankId> absent;
  absl::Status absence;
  std::string job_id;
  absl::Duration start_timeout = absl::Seconds(30);  // longest wait for parent and children
  absl::Duration heartbeat = absl::Seconds(1);       // time between signs of life
  // A rank without a sign of life for this long is treated as lost, even if it is only stopped. Infinite if a debugger
  // is used.
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  std::shared_ptr<FlightBoard> flights;  // heartbeats bring the latest events of ranks on other hosts; may be nullptr
  // Called once, by a thread of the control plane, with the job's first failure after the start; may be nullptr.
  // Must not destroy the control plane.
  std::function<void(const absl::Status&)> on_failure;
  // Depart calls on_depart, and AnnounceExit calls on_exit. They are another way by which ranks of this host learn of
  // the departure or the exit. May be nullptr.
  std::function<void()> on_depart;
  std::function<void()> on_exit;
  std::shared_ptr<const void> kept;  // kept as long as the control plane lives
  // Called if the control plane releases `messages` before the library has finished all of its work. The library must
  // not be called any more after this. May be nullptr.
  std::function<void()> abandon_messages;
  int fan_out = kControlFanOut;  // most children of a rank, the same on all ranks
  // Whether each rank of this host has a core, so that a thread may spin for a message.
  PollLimit::Cores cores = PollLimit::Cores::kAreShared;
};

// Carries control messages over TCP, MPI, or any other PointToPoint. Each rank exchanges messages with its parent in a
// tree, and the parent passes on messages for others. Reports reach rank 0 in as many steps as the tree has levels.
// Equal reports that wait at a rank continue as one report, so a cached round of the negotiation is a small reduction.
//
// Messages move while a thread looks for them. This thread is the thread in Wait, or a thread that calls Receive. If no
// other thread looks, because the rank is in a collective or computes, the control plane's own thread looks. So
// requests to unlock, failures and signs of life pass through a rank at any time.
//
// If messages wake threads (PointToPoint::DescriptorOf, as over TCP), a thread in Wait sleeps in poll() until a message
// comes, and no other thread has to wake it. While another thread polls, Wait pauses for a millisecond at a time, and
// leaves the messages to that thread. The control plane's thread takes over a few milliseconds after the others have
// stopped looking. An idle rank uses no core.
//
// If messages do not wake threads, as over MPI, threads look again and again. A rank in Wait looks without a pause for
// a tenth of a millisecond after a movement. After that it sleeps between looks, for an eighth of the time since the
// last movement, up to 1 ms; Wake ends such a sleep. The control plane's thread looks every millisecond when nothing
// has moved for 20 ms, or when no other thread looks. An idle rank uses 1.6 % of a core in this way.
//
// If a neighbour's connection breaks without a departure, or a rank gives no sign of life for heartbeat_timeout, the
// job fails. The failure names rank, host and pid. Of several failures, the first that reaches rank 0 becomes the job's
// failure. Fail waits for rank 0's decision, for a few seconds at most. A rank that is cut off from rank 0 has its own
// failure, which names the lost rank on the path to rank 0.
//
// If messages do not wake threads, a rank that knows of the job's failure notifies its neighbours, for a second at
// most, and then makes no more calls to the library. Only after its last call to the library, failure() and the other
// calls return the failure. So a caller that gets a failure from the control plane may free the buffers of an abandoned
// collective.
//
// The destructor announces the departure to parent and children. It returns when these have received the announcement,
// or after a few seconds.
//
// Blocks until all ranks have connected to their parents.
// Errors: DEADLINE_EXCEEDED that names the missing ranks; INVALID_ARGUMENT if a neighbour belongs to another job; the
// library's errors.
absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectMessageControlPlane(MessageControlPlaneOptions options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MESSAGES_MESSAGE_CONTROL_PLANE_H_
