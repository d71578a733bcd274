#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_NODE_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_NODE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/tree/act_relay.h"
#include "runtime/control/tree/control_frame.h"
#include "runtime/control/tree/control_tree.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/control/tree/report_batch.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// One rank's place in the tree of the control plane: what it makes of its neighbours' frames, of their silence and
// their end, and what it has to tell them. A neighbour is a rank's parent or one of its children.
//
// A pure state machine: knows no network, no thread and no clock. Whoever drives it hands in frames and times, and
// takes pieces of bytes out, which have to reach the neighbour in order.
//
// The job's first failure is the first that rank 0 hears of. Others pass theirs on and adopt what rank 0 says, unless
// they are cut off from it: then what cut them off is their failure, and that of the ranks below them.
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

  // What happens to the neighbours. Attach: it has proved who it is. REQUIRES: Attach has been called once for
  // `neighbour`, before all else.
  void Attach(RankId neighbour, absl::Duration now);
  bool IsAttached(RankId neighbour) const { return links_.contains(neighbour); }
  void Take(RankId neighbour, std::string frame, absl::Duration now);
  // What it sends cannot be understood any more, because of `damage`.
  void Distrust(RankId neighbour, const absl::Status& damage);
  // Its stream has ended.
  void Lose(RankId neighbour);
  // Whether it has said that it leaves on purpose.
  bool HasDeparted(RankId neighbour) const { return links_.at(neighbour).departed; }
  // Whether it may still hear what this rank sends: its stream has not ended, nor has it been given up.
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
    bool departed = false;    // said farewell
    bool distrusted = false;  // damaged or silent, and said so: what it sends is not looked at any more
    bool lost = false;        // its stream has ended
  };

  bool is_root() const { return options_.rank == kCoordinatorRank; }
  bool IsParent(RankId neighbour) const { return neighbour < options_.rank; }
  bool CanReachParent() const;
  void SendTo(RankId neighbour, const FrameBytes& frame);
  void SendUp(const ControlFrame& frame);
  void SendDown(const ControlFrame& frame) { PassDown(std::make_shared<const std::string>(Encode(frame))); }
  void PassDown(const FrameBytes& frame);

  // One for each kind of frame. Errors: why `neighbour` cannot have meant it.
  absl::Status Handle(RankId neighbour, const ControlFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ArrivalFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const StartFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const ReportsFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const BroadcastFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const CallOffFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const FailureFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const DepartureFrame& frame, const FrameBytes& bytes);
  absl::Status On(RankId neighbour, const HeartbeatFrame& frame, const FrameBytes& bytes);

  absl::Status CheckBelow(RankId neighbour, const std::vector<RankId>& ranks) const;
  absl::Status CheckFromParent(RankId neighbour) const;
  void NoteArrival(const std::vector<RankId>& ranks);
  void Start();
  // `failure` cuts this rank off from `neighbour`.
  void GiveUp(RankId neighbour, const absl::Status& failure);
  void SayFarewell();
  void CheckSilence(absl::Duration now);
  void SendHeartbeats();

  const Options options_;
  std::map<RankId, Link> links_;
  ActRelay acts_;
  ReportBatch reports_;  // that go up
  ControlPlane::Inbox inbox_;
  uint64_t called_off_ = 0;  // the highest schedule that has been
  absl::Status failure_;
  std::vector<bool> arrived_;  // by rank: which of those below this one, itself included, have connected
  int arrivals_ = 0;           // of them
  bool started_ = false;
  bool has_proposed_ = false;  // a failure, which is before any other that could go the same way
  bool has_departed_ = false;
  bool news_ = false;
  absl::Duration last_tick_ = -absl::InfiniteDuration();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_NODE_H_
