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

// Maximum number of children per rank over MPI. With 4 children per rank, a job of 5 ranks has one level below rank 0,
// and a job of 85 ranks has three levels. Each level adds one message up the tree and one message down the tree. Each
// look for messages costs a parent one library call per child. Over TCP, one poll() covers all children, so the maximum
// there is kControlFanOut.
inline constexpr int kMpiControlFanOut = 4;

struct MessageControlPlaneOptions {
  RankId rank = 0;
  std::vector<Peer> peers;                 // by rank
  std::unique_ptr<PointToPoint> messages;  // between neighbours in the tree; only the control plane uses it
  // `absent` are the neighbours to which `messages` has no connection, and `absence` is the reason. If `absence` is an
  // error, the job fails with it, and the control plane sends it to the ranks that it can reach.
  std::vector<RankId> absent;
  absl::Status absence;
  std::string job_id;
  absl::Duration start_timeout = absl::Seconds(30);  // longest wait for parent and children
  absl::Duration heartbeat = absl::Seconds(1);       // time between signs of life
  // A rank that gives no sign of life for this long is treated as lost, even if it is only stopped. May be infinite,
  // for debugging.
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  std::shared_ptr<FlightBoard> flights;  // heartbeats bring the latest events of ranks on other hosts; may be nullptr
  // If the job fails after its start, a thread of the control plane calls this function once, with the first failure.
  // May be nullptr. The function must not destroy the control plane.
  std::function<void(const absl::Status&)> on_failure;
  // Depart calls on_depart, and AnnounceExit calls on_exit. They notify the other ranks of this host, in addition to
  // the messages. Either may be nullptr.
  std::function<void()> on_depart;
  std::function<void()> on_exit;
  std::shared_ptr<const void> kept;  // kept as long as the control plane lives
  // Called when the control plane destroys `messages` after a failure, or while the library has unfinished work. After
  // this call, nobody may call the library again. May be nullptr.
  std::function<void()> abandon_messages;
  int fan_out = kControlFanOut;  // most children of a rank, the same on all ranks
  // Whether each rank of this host has its own core. Only then may a thread spin for a message.
  PollLimit::Cores cores = PollLimit::Cores::kAreShared;
};

// Carries control messages over TCP, MPI, or any other PointToPoint. The ranks form a tree. Each rank exchanges
// messages only with its parent and its children, which forward messages for other ranks. A report passes through one
// rank on each level of the tree on its way to rank 0. If equal reports of several ranks wait at the same parent, the
// parent forwards only one of them. So if all ranks have cached a step, few reports reach rank 0.
//
// Messages move only while a thread of the rank looks for them: the thread in Wait, or a thread that calls Receive.
// While the rank executes a collective or computes, only the control plane's own thread looks for messages. So a rank
// can forward unlock requests, failures and signs of life at any time.
//
// If messages wake threads (PointToPoint::DescriptorOf, as over TCP), a thread in Wait sleeps in poll() until a message
// arrives, so no other thread has to wake it. While another thread polls (StartPolling), Wait sleeps for a millisecond
// at a time, and the polling thread moves the messages. If neither a thread in Wait nor a polling thread has looked for
// messages for a few milliseconds, the control plane's own thread begins to look. An idle rank uses almost no CPU.
//
// If messages do not wake threads, as over MPI, threads look for messages by calling the library repeatedly. After a
// message has moved, a thread in Wait looks continuously for a tenth of a millisecond. After that it sleeps between two
// looks, for an eighth of the time since the last message, up to 1 ms. Wake ends such a sleep. If no message has moved
// for 20 ms, or no other thread looks, the control plane's own thread looks for messages every millisecond. An idle
// rank then uses 1.6 % of a core.
//
// If a neighbour's connection breaks without a departure, or a rank gives no sign of life for heartbeat_timeout, the
// job fails with an error that names the rank, its host and its pid. If several ranks report failures, the first one to
// reach rank 0 becomes the job's failure. Fail waits for rank 0 to decide, but only for a few seconds. A rank that is
// cut off from rank 0 gets its own failure, which names the lost rank on the path to rank 0.
//
// If messages do not wake threads, a rank that learns of the job's failure notifies its neighbours, which takes a
// second at most. After that, the rank never calls the library again, and only then do failure() and the other calls
// return the failure. So a caller that gets the failure may free the buffers of an abandoned collective.
//
// The destructor announces this rank's departure to its parent and its children. It returns when they have received the
// announcement, or after a few seconds.
//
// ConnectMessageControlPlane blocks until all ranks have connected to their parents.
// Errors: DEADLINE_EXCEEDED, naming the missing ranks; INVALID_ARGUMENT if a neighbour belongs to another job; the
// library's errors.
absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectMessageControlPlane(MessageControlPlaneOptions options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MESSAGES_MESSAGE_CONTROL_PLANE_H_
