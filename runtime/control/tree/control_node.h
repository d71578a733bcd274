// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_NODE_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_NODE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/tree/control_frame.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Maximum number of children per rank. In a job of up to 65 ranks, all ranks except rank 0 are children of rank 0.
inline constexpr int kControlFanOut = 64;

// The ranks form a tree in which the parent of rank r is (r - 1) / fan_out. So parents have lower numbers than their
// children, and the children of a rank have consecutive numbers.
struct ControlTree {
  int size = 1;  // of the job
  int fan_out = kControlFanOut;

  // REQUIRES: `rank` is not 0.
  RankId Parent(RankId rank) const { return (rank - 1) / fan_out; }

  std::vector<RankId> Children(RankId rank) const {
    std::vector<RankId> children;
    const RankId first = rank * fan_out + 1;
    for (RankId child = first; child < std::min(first + fan_out, size); ++child) children.push_back(child);
    return children;
  }

  // Returns the parent of the rank, if any, and the children of the rank.
  std::vector<RankId> Neighbours(RankId rank) const {
    std::vector<RankId> neighbours = Children(rank);
    if (rank != kCoordinatorRank) neighbours.insert(neighbours.begin(), Parent(rank));
    return neighbours;
  }

  // Returns whether `rank` is `top`, or is below `top` in the tree.
  bool IsWithin(RankId rank, RankId top) const {
    while (rank > top) rank = Parent(rank);
    return rank == top;
  }
};

inline bool HasControlChildren(RankId rank, int size) { return rank * kControlFanOut + 1 < size; }

// Sends the latest event of each rank up the tree to rank 0, and down again to all ranks. So every host can report the
// last event of a late rank. A rank sends an event only once, and only after the event has been its latest for
// `standstill`. So neither busy nor idle ranks cause traffic.
//
// The relay sends the age of an event instead of its time, because the clocks of the hosts differ. Thread-compatible.
class EventRelay {
 public:
  struct Options {
    RankId rank = 0;
    std::vector<Peer> peers;               // by rank
    absl::Duration standstill;             // an event is sent if it is the latest for this long
    std::shared_ptr<FlightBoard> flights;  // nullptr: nothing is sent or recorded
  };

  explicit EventRelay(Options options) : options_(std::move(options)) {}

  // These functions process events from a child or from the parent.
  void ReceiveFromChild(const std::vector<RankEvent>& events, FlightTime now);
  void ReceiveFromParent(const std::vector<RankEvent>& events, FlightTime now);

  // The events that are new since the last Take. The caller must send `up` to the parent, and `down` to every child.
  struct News {
    std::vector<RankEvent> up;
    std::vector<RankEvent> down;
  };
  News Take(FlightTime now);

 private:
  struct Timed {
    RankEvent event;  // its age at the time `at`
    FlightTime at;
  };

  static std::vector<RankEvent> PopAged(std::vector<Timed>& events, FlightTime now);
  void LookAtOwn(FlightTime now);
  void Record(const RankEvent& event, FlightTime now);

  const Options options_;
  std::optional<FlightTime> last_told_;  // the time of this rank's event that was last sent
  std::vector<Timed> up_;
  std::vector<Timed> down_;
};

// One rank in the tree of the control plane. Processes the frames of its neighbours, notices neighbours that are silent
// or have ended, and produces frames for its neighbours, which are its parent and its children.
//
// A state machine without network, threads or clock. The caller passes in frames and times. The caller gets bytes in
// pieces (PopPiece), and must deliver them to the neighbour in order.
//
// The job's first failure is the first one to reach rank 0. All other ranks send their failures to rank 0, and accept
// the failure that rank 0 announces. If a rank is cut off from rank 0, this loss is the failure of the rank and of the
// ranks below it.
//
// Thread-compatible. All times are on the clock of the flight recorders (FlightNow), which is also MonotonicTime().
class ControlNode {
 public:
  struct Options {
    RankId rank = 0;
    std::vector<Peer> peers;  // by rank
    ControlTree tree;
    absl::Duration heartbeat = absl::Seconds(1);
    absl::Duration heartbeat_timeout = absl::Seconds(10);
    std::shared_ptr<FlightBoard> flights;  // may be nullptr
  };

  explicit ControlNode(Options options);

  // With the next functions, the caller reports what has happened to a neighbour. Attach must be called when the
  // neighbour has opened its link.
  // REQUIRES: Attach has been called once for `neighbour`, before all other calls for this neighbour.
  void Attach(RankId neighbour, absl::Duration now);
  bool IsAttached(RankId neighbour) const { return links_.contains(neighbour); }
  bool IsAttachedToParent() const { return !is_root() && IsAttached(options_.tree.Parent(options_.rank)); }
  void Receive(RankId neighbour, std::string frame, absl::Duration now);
  // Must be called when a part of a frame has arrived from the neighbour.
  void RecordSignOfLife(RankId neighbour, absl::Duration now) { links_.at(neighbour).last_heard = now; }
  // Must be called when the neighbour's frames can no longer be decoded. `damage` is the reason.
  void Distrust(RankId neighbour, const absl::Status& damage);
  // Must be called when the neighbour's link has ended.
  void Lose(RankId neighbour);
  // Returns whether the neighbour has announced its departure.
  bool HasDeparted(RankId neighbour) const { return links_.at(neighbour).departed; }
  // Returns whether this rank's frames may still reach the neighbour: the link has not ended, and this rank has not
  // given up the neighbour.
  bool IsTrusted(RankId neighbour) const { return !links_.at(neighbour).lost && !links_.at(neighbour).distrusted; }

  // Returns the next bytes to send to the neighbour, or an empty string if there are none.
  std::string PopPiece(RankId neighbour);
  // Returns whether the neighbour's queue has bytes that PopPiece has not returned yet.
  bool HasToSay(RankId neighbour) const { return !links_.at(neighbour).queue.empty(); }

  // Sends heartbeats to all neighbours, and checks that each of them has recently given a sign of life. Must be called
  // every `heartbeat`.
  void Tick(absl::Duration now);

  // These functions implement the operations of ControlPlane. Propose implements Fail: it sends the failure to rank 0,
  // which decides on the job's failure. Decide makes `failure` the failure of this rank and of the ranks below it,
  // unless they already have one.
  void Send(std::string payload);
  void Broadcast(absl::string_view payload);
  void RequestUnlock(uint64_t schedule);
  void Propose(const absl::Status& failure);
  void Decide(const absl::Status& failure);
  void Depart();
  bool has_departed() const { return has_departed_; }
  void AnnounceExit();
  ControlPlane::Inbox TakeInbox();
  bool HasMessages() const { return !inbox_.to_coordinator.empty() || !inbox_.broadcasts.empty(); }
  const absl::Status& failure() const { return failure_; }

  // Returns whether rank 0 has announced that all ranks of the job have connected.
  bool started() const { return started_; }
  // Returns the error of a job that has not started within `time`. On rank 0, it names the ranks that have not
  // connected.
  absl::Status LateError(absl::Duration time) const;

  // Returns whether an event for which this rank may be waiting has happened since the last call of TakeNews.
  bool TakeNews() { return std::exchange(news_, false); }

 private:
  struct Link {
    FrameQueue queue;
    absl::Duration last_heard;
    bool departed = false;    // announced its departure
    bool exits = false;       // announced that its program has ended without a departure
    bool distrusted = false;  // damaged or silent, and notified of that: its frames are ignored
    bool lost = false;        // its link has ended
  };

  bool is_root() const { return options_.rank == kCoordinatorRank; }
  bool IsParent(RankId neighbour) const { return neighbour < options_.rank; }
  bool CanReachParent() const;
  void SendTo(RankId neighbour, const FrameBytes& frame);
  void SendUp(const ControlFrame& frame);
  void SendDown(const ControlFrame& frame) { PassDown(std::make_shared<const std::string>(Encode(frame))); }
  void PassDown(const FrameBytes& frame);

  // Calls On() for the frame's kind. Errors: the reason why `neighbour` cannot have sent this frame.
  absl::Status Handle(RankId neighbour, const ControlFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ArrivalFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const StartFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ReportsFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const BroadcastFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const UnlockRequestFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const FailureFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const DepartureFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const HeartbeatFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ExitFrame& frame, const FrameBytes& bytes);

  absl::Status CheckBelow(RankId neighbour, const std::vector<RankId>& ranks) const;
  absl::Status CheckFromParent(RankId neighbour) const;
  void RecordArrival(const std::vector<RankId>& ranks);
  void Start();
  // Cuts this rank off from `neighbour`, because of `failure`.
  void GiveUp(RankId neighbour, const absl::Status& failure);
  void SendToAll(const ControlFrame& frame);
  void CheckSilence(absl::Duration now);
  void SendHeartbeats(absl::Duration now);

  const Options options_;
  std::map<RankId, Link> links_;
  EventRelay events_;
  ReportBatch reports_;  // on their way up
  ControlPlane::Inbox inbox_;
  uint64_t unlock_requested_ = 0;  // the highest schedule whose unlocking has been requested
  absl::Status failure_;
  std::vector<bool> arrived_;  // by rank: whether it has connected; for this rank and those below it
  int arrivals_ = 0;           // how many have connected
  bool started_ = false;
  bool has_proposed_ = false;  // has proposed a failure, which precedes any later one on the same path
  bool has_departed_ = false;
  bool news_ = false;
  absl::Duration last_tick_ = -absl::InfiniteDuration();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_NODE_H_
