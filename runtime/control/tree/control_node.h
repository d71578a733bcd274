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

// Most children of a rank: up to 65 ranks are rank 0 and its children.
inline constexpr int kControlFanOut = 64;

// Ranks form a tree in which rank r's parent is (r - 1) / fan_out. So parents have lower numbers than their children,
// and the children of a rank are consecutive.
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

  // Whether `rank` is `top`, or reaches rank 0 through it.
  bool IsWithin(RankId rank, RankId top) const {
    while (rank > top) rank = Parent(rank);
    return rank == top;
  }
};

inline RankId ControlParent(RankId rank) { return ControlTree{}.Parent(rank); }
inline bool HasControlChildren(RankId rank, int size) { return rank * kControlFanOut + 1 < size; }

// Spreads the latest event of each rank, so that a report of a late rank can tell it on any host: up the tree to rank
// 0, and down again to all ranks. An event travels only if no other has followed for a while, and only once: neither
// ranks that work nor idle ranks cause traffic.
//
// Ages travel, because hosts' clocks differ. Thread-compatible.
class EventRelay {
 public:
  struct Options {
    RankId rank = 0;
    std::vector<Peer> peers;               // by rank
    absl::Duration standstill;             // an event that is the latest for so long is told
    std::shared_ptr<FlightBoard> flights;  // nullptr: nothing is told or noted
  };

  explicit EventRelay(Options options) : options_(std::move(options)) {}

  // Take events that have come from a child, and from the parent.
  void TakeFromBelow(const std::vector<RankEvent>& events, FlightTime now);
  void TakeFromAbove(const std::vector<RankEvent>& events, FlightTime now);

  // The events to tell since the last time: to the parent; and to all children alike.
  struct News {
    std::vector<RankEvent> up;
    std::vector<RankEvent> down;
  };
  News Take(FlightTime now);

 private:
  struct Timed {
    RankEvent event;  // its age counts from `at`
    FlightTime at;
  };

  static std::vector<RankEvent> TakeAged(std::vector<Timed>& events, FlightTime now);
  void LookAtOwn(FlightTime now);
  void Note(const RankEvent& event, FlightTime now);

  const Options options_;
  std::optional<FlightTime> last_told_;  // the time of this rank's event that was told last
  std::vector<Timed> up_;
  std::vector<Timed> down_;
};

// One rank in the tree of the control plane: it handles its neighbours' frames, their silence and their end, and has
// frames for them. A neighbour is a rank's parent or one of its children.
//
// A pure state machine: it knows no network, no thread and no clock. Its driver hands in frames and times, and takes
// pieces of bytes out, which have to reach the neighbour in order.
//
// The job's first failure is the first that rank 0 hears of. The other ranks pass theirs on and adopt the one that rank
// 0 announces. A rank that is cut off from rank 0 has that as its failure, and so have the ranks below it.
//
// Thread-compatible. Times are on one clock, that does not jump.
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

  // Events of the neighbours. Attach: the neighbour has proved its identity.
  // REQUIRES: Attach has been called once for `neighbour`, before all else.
  void Attach(RankId neighbour, absl::Duration now);
  bool IsAttached(RankId neighbour) const { return links_.contains(neighbour); }
  void Take(RankId neighbour, std::string frame, absl::Duration now);
  // Its frames cannot be understood any more, because of `damage`.
  void Distrust(RankId neighbour, const absl::Status& damage);
  // Its stream has ended.
  void Lose(RankId neighbour);
  // Whether it has announced its departure.
  bool HasDeparted(RankId neighbour) const { return links_.at(neighbour).departed; }
  // Whether frames of this rank may still reach it: its stream has not ended, and it has not been given up.
  bool IsTrusted(RankId neighbour) const { return !links_.at(neighbour).lost && !links_.at(neighbour).distrusted; }

  // The next bytes to send to a neighbour; empty if there are none.
  std::string TakePiece(RankId neighbour);
  // Whether there are frames of which some bytes have not been taken.
  bool HasToSay(RankId neighbour) const { return !links_.at(neighbour).queue.empty(); }

  // Sends signs of life, and looks for neighbours that give none. To be called every `heartbeat`.
  void Tick(absl::Duration now);

  // ControlPlane's operations. Propose is its Fail, for rank 0 to decide upon; Decide makes `failure` this rank's and
  // that of the ranks below it, unless they have one.
  void Send(std::string payload);
  void Broadcast(absl::string_view payload);
  void CallOff(uint64_t schedule);
  void Propose(const absl::Status& failure);
  void Decide(const absl::Status& failure);
  void Depart();
  bool has_departed() const { return has_departed_; }
  void AnnounceExit();
  ControlPlane::Inbox TakeInbox();
  const absl::Status& failure() const { return failure_; }

  // Whether all ranks of the job have connected, as rank 0 says.
  bool started() const { return started_; }
  // On rank 0: those that have not, in ascending order.
  std::vector<RankId> Missing() const;

  // Whether anything has happened since the last call that this rank may wait for.
  bool TakeNews() { return std::exchange(news_, false); }

 private:
  struct Link {
    FrameQueue queue;
    absl::Duration last_heard;
    bool departed = false;    // announced its departure
    bool exits = false;       // announced that its program has ended without a departure
    bool distrusted = false;  // damaged or silent, and told so: its frames are ignored
    bool lost = false;        // its stream has ended
  };

  bool is_root() const { return options_.rank == kCoordinatorRank; }
  bool IsParent(RankId neighbour) const { return neighbour < options_.rank; }
  bool CanReachParent() const;
  void SendTo(RankId neighbour, const FrameBytes& frame);
  void SendUp(const ControlFrame& frame);
  void SendDown(const ControlFrame& frame) { PassDown(std::make_shared<const std::string>(Encode(frame))); }
  void PassDown(const FrameBytes& frame);

  // One for each kind of frame. Errors: the reason why `neighbour` cannot have meant it.
  absl::Status Handle(RankId neighbour, const ControlFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ArrivalFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const StartFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ReportsFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const BroadcastFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const CallOffFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const FailureFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const DepartureFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const HeartbeatFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ExitFrame& frame, const FrameBytes& bytes);

  absl::Status CheckBelow(RankId neighbour, const std::vector<RankId>& ranks) const;
  absl::Status CheckFromParent(RankId neighbour) const;
  void NoteArrival(const std::vector<RankId>& ranks);
  void Start();
  // `failure` cuts this rank off from `neighbour`.
  void GiveUp(RankId neighbour, const absl::Status& failure);
  void SendToAll(const ControlFrame& frame);
  void CheckSilence(absl::Duration now);
  void SendHeartbeats();

  const Options options_;
  std::map<RankId, Link> links_;
  EventRelay events_;
  ReportBatch reports_;  // that go up
  ControlPlane::Inbox inbox_;
  uint64_t called_off_ = 0;  // the highest schedule that has been
  absl::Status failure_;
  std::vector<bool> arrived_;  // by rank: whether it has connected; of this rank and those below it
  int arrivals_ = 0;           // of them
  bool started_ = false;
  bool has_proposed_ = false;  // a failure, which precedes any other on the same path
  bool has_departed_ = false;
  bool news_ = false;
  absl::Duration last_tick_ = -absl::InfiniteDuration();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_NODE_H_
