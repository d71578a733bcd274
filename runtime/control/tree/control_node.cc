// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/tree/control_node.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {
namespace {

// One frame of reports has at most this many bytes of payload, unless a single report is longer.
constexpr size_t kReportFrameBytes = size_t{1} << 20;

// An error names at most this many ranks.
constexpr size_t kNamedRanks = 8;

absl::Status Misplaced(absl::string_view frame) {
  return absl::InvalidArgumentError(absl::StrCat("control: ", frame, " came from the wrong side"));
}

}  // namespace

void EventRelay::ReceiveFromChild(const std::vector<RankEvent>& events, FlightTime now) {
  if (options_.rank == kCoordinatorRank) return ReceiveFromParent(events, now);
  // Rank 0 sends the event down again, and ReceiveFromParent then records it on this rank.
  for (const RankEvent& event : events) up_.push_back({.event = event, .at = now});
}

void EventRelay::ReceiveFromParent(const std::vector<RankEvent>& events, FlightTime now) {
  for (const RankEvent& event : events) {
    Record(event, now);
    down_.push_back({.event = event, .at = now});
  }
}

void EventRelay::Record(const RankEvent& event, FlightTime now) {
  // Events of ranks on this host are not recorded here, because all ranks of the host can read each other's recorders.
  const bool is_remote = options_.peers[event.rank].host != options_.peers[options_.rank].host;
  if (options_.flights == nullptr || !is_remote) return;
  options_.flights->Of(event.rank).Record(event.kind, event.op, event.name, event.bytes, now - event.age);
}

void EventRelay::LookAtOwn(FlightTime now) {
  if (options_.flights == nullptr) return;
  const std::optional<FlightEvent> last = options_.flights->Of(options_.rank).Last();
  if (!last.has_value() || last_told_ == last->time || now - last->time < options_.standstill) return;
  last_told_ = last->time;
  const RankEvent event = {.rank = options_.rank,
                           .kind = last->kind,
                           .op = last->op,
                           .name = last->name,
                           .bytes = last->bytes,
                           .age = now - last->time};
  (options_.rank == kCoordinatorRank ? down_ : up_).push_back({.event = event, .at = now});
}

std::vector<RankEvent> EventRelay::PopAged(std::vector<Timed>& events, FlightTime now) {
  std::vector<RankEvent> aged;
  for (Timed& timed : std::exchange(events, {})) {
    timed.event.age += now - timed.at;
    aged.push_back(std::move(timed.event));
  }
  return aged;
}

EventRelay::News EventRelay::Take(FlightTime now) {
  LookAtOwn(now);
  return {.up = PopAged(up_, now), .down = PopAged(down_, now)};
}

ControlNode::ControlNode(Options options)
    : options_(std::move(options)),
      events_({.rank = options_.rank,
               .peers = options_.peers,
               .standstill = options_.heartbeat,
               .flights = options_.flights}),
      arrived_(options_.tree.size) {
  RecordArrival({options_.rank});
}

void ControlNode::Attach(RankId neighbour, absl::Duration now) {
  RONDA_CHECK(!IsAttached(neighbour));
  links_[neighbour].last_heard = now;
  if (!failure_.ok()) return SendTo(neighbour, std::make_shared<const std::string>(Encode(FailureFrame{failure_})));
  if (!IsParent(neighbour)) return RecordArrival({neighbour});
  // The frame leaves out this rank itself, because its parent already knows that this rank has arrived.
  ArrivalFrame arrival;
  for (RankId rank = options_.rank + 1; rank < options_.tree.size; ++rank) {
    if (arrived_[rank]) arrival.ranks.push_back(rank);
  }
  if (!arrival.ranks.empty()) SendUp(arrival);
}

void ControlNode::RecordArrival(const std::vector<RankId>& ranks) {
  for (const RankId rank : ranks) {
    if (!arrived_[rank]) ++arrivals_;
    arrived_[rank] = true;
  }
  SendUp(ArrivalFrame{.ranks = ranks});
  if (is_root() && arrivals_ == options_.tree.size) Start();
}

void ControlNode::Start() {
  started_ = true;
  SendDown(StartFrame{});
}

absl::Status ControlNode::LateError(absl::Duration time) const {
  if (!is_root()) {
    const std::string parent = IsAttachedToParent() ? "rank 0 that all ranks have connected"
                                                    : ToString(options_.peers[options_.tree.Parent(options_.rank)]);
    return absl::DeadlineExceededError(absl::StrCat(ToString(options_.peers[options_.rank]), " did not hear from ",
                                                    parent, " within ", absl::FormatDuration(time)));
  }
  std::vector<std::string> missing;
  for (RankId rank = 0; rank < options_.tree.size; ++rank) {
    if (!arrived_[rank]) missing.push_back(ToString(options_.peers[rank]));
  }
  if (missing.size() > kNamedRanks) {
    const size_t more = missing.size() - kNamedRanks;
    missing.resize(kNamedRanks);
    missing.push_back(absl::StrCat(more, " more"));
  }
  return absl::DeadlineExceededError(absl::StrCat("no control connection within ", absl::FormatDuration(time), " from ",
                                                  absl::StrJoin(missing, ", ")));
}

bool ControlNode::CanReachParent() const {
  if (is_root()) return false;
  const auto link = links_.find(options_.tree.Parent(options_.rank));
  return link != links_.end() && !link->second.lost && !link->second.departed;
}

void ControlNode::SendTo(RankId neighbour, const FrameBytes& frame) {
  Link& link = links_.at(neighbour);
  if (!link.lost) link.queue.Push(frame);
}

void ControlNode::SendUp(const ControlFrame& frame) {
  if (CanReachParent()) SendTo(options_.tree.Parent(options_.rank), std::make_shared<const std::string>(Encode(frame)));
}

void ControlNode::PassDown(const FrameBytes& frame) {
  for (const auto& [neighbour, link] : links_) {
    if (!IsParent(neighbour)) SendTo(neighbour, frame);
  }
}

std::string ControlNode::PopPiece(RankId neighbour) {
  Link& link = links_.at(neighbour);
  if (IsParent(neighbour) && link.queue.empty() && !reports_.empty()) {
    SendUp(ReportsFrame{.reports = reports_.Take(kReportFrameBytes)});
  }
  return link.queue.PopPiece();
}

void ControlNode::Receive(RankId neighbour, std::string frame, absl::Duration now) {
  RecordSignOfLife(neighbour, now);
  if (links_.at(neighbour).distrusted) return;
  absl::StatusOr<ControlFrame> decoded = DecodeControlFrame(frame, options_.tree.size);
  if (!decoded.ok()) return Distrust(neighbour, decoded.status());
  // After a failure this rank ignores all frames except departures.
  if (!failure_.ok() && !std::holds_alternative<DepartureFrame>(*decoded)) return;
  const absl::Status status = Handle(neighbour, *decoded, std::make_shared<const std::string>(std::move(frame)));
  if (!status.ok()) Distrust(neighbour, status);
}

absl::Status ControlNode::Handle(RankId neighbour, const ControlFrame& frame, const FrameBytes& bytes) {
  return std::visit([&](const auto& content) { return On(neighbour, content, bytes); }, frame);
}

absl::Status ControlNode::CheckBelow(RankId neighbour, const std::vector<RankId>& ranks) const {
  if (IsParent(neighbour)) return Misplaced("a frame for parents");
  for (const RankId rank : ranks) {
    if (options_.tree.IsWithin(rank, neighbour)) continue;
    return absl::InvalidArgumentError(absl::StrCat("control: rank ", rank, " is not below rank ", neighbour));
  }
  return absl::OkStatus();
}

absl::Status ControlNode::CheckFromParent(RankId neighbour) const {
  return IsParent(neighbour) ? absl::OkStatus() : Misplaced("a frame for children");
}

absl::Status ControlNode::On(RankId neighbour, const ArrivalFrame& frame, const FrameBytes&) {
  RONDA_RETURN_IF_ERROR(CheckBelow(neighbour, frame.ranks));
  RecordArrival(frame.ranks);
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId neighbour, const StartFrame&, const FrameBytes&) {
  RONDA_RETURN_IF_ERROR(CheckFromParent(neighbour));
  Start();
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId neighbour, const ReportsFrame& frame, const FrameBytes&) {
  for (const SharedReport& report : frame.reports) {
    RONDA_RETURN_IF_ERROR(CheckBelow(neighbour, report.ranks));
    if (!is_root()) {
      reports_.Add(report);
      continue;
    }
    for (const RankId rank : report.ranks) inbox_.to_coordinator.push_back({.from = rank, .payload = report.payload});
  }
  news_ |= is_root();
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId neighbour, const BroadcastFrame& frame, const FrameBytes& bytes) {
  RONDA_RETURN_IF_ERROR(CheckFromParent(neighbour));
  PassDown(bytes);
  inbox_.broadcasts.push_back(frame.payload);
  news_ = true;
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId, const UnlockRequestFrame& frame, const FrameBytes&) {
  RequestUnlock(frame.schedule);
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId neighbour, const FailureFrame& frame, const FrameBytes&) {
  if (IsParent(neighbour)) {
    Decide(frame.failure);
  } else {
    Propose(frame.failure);
  }
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId neighbour, const DepartureFrame&, const FrameBytes&) {
  links_.at(neighbour).departed = true;
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId neighbour, const ExitFrame&, const FrameBytes&) {
  links_.at(neighbour).exits = true;
  return absl::OkStatus();
}

absl::Status ControlNode::On(RankId neighbour, const HeartbeatFrame& frame, const FrameBytes&) {
  const FlightTime now = links_.at(neighbour).last_heard;  // the time of this frame
  if (IsParent(neighbour)) {
    events_.ReceiveFromParent(frame.events, now);
  } else {
    events_.ReceiveFromChild(frame.events, now);
  }
  return absl::OkStatus();
}

void ControlNode::Send(std::string payload) {
  if (is_root()) {
    inbox_.to_coordinator.push_back({.from = kCoordinatorRank, .payload = std::move(payload)});
    news_ = true;
  } else if (CanReachParent()) {
    reports_.Add({.payload = std::move(payload), .ranks = {options_.rank}});
  }
}

void ControlNode::Broadcast(absl::string_view payload) {
  RONDA_CHECK(is_root());
  inbox_.broadcasts.emplace_back(payload);
  news_ = true;
  if (!links_.empty()) SendDown(BroadcastFrame{.payload = std::string(payload)});
}

void ControlNode::RequestUnlock(uint64_t schedule) {
  if (schedule <= unlock_requested_) return;
  unlock_requested_ = schedule;
  news_ = true;
  // The request also goes back to its sender, which ignores it.
  SendToAll(UnlockRequestFrame{.schedule = schedule});
}

void ControlNode::Propose(const absl::Status& failure) {
  if (!failure_.ok()) return;
  if (!CanReachParent()) return Decide(failure);
  if (has_proposed_) return;
  // The job has failed, whichever failure was first. So unsent frames are dropped: they would only delay the failure
  // frame.
  reports_ = ReportBatch();
  links_.at(options_.tree.Parent(options_.rank)).queue.DropUnbegun();
  SendUp(FailureFrame{failure});
  has_proposed_ = true;  // set last, because the call is tried again if there was no memory
}

void ControlNode::Decide(const absl::Status& failure) {
  if (!failure_.ok()) return;
  failure_ = failure;
  news_ = true;
  // Unsent frames are dropped, because they would only delay the failure frame.
  for (auto& [neighbour, link] : links_) {
    if (!IsParent(neighbour)) link.queue.DropUnbegun();
  }
  SendDown(FailureFrame{failure});
  if (has_departed_) SendToAll(DepartureFrame{});
}

void ControlNode::Depart() {
  if (has_departed_) return;
  SendToAll(DepartureFrame{});
  // If memory runs out before this line, the caller repeats Depart, and some neighbours get the frame twice.
  has_departed_ = true;
}

void ControlNode::AnnounceExit() {
  if (failure_.ok() && !has_departed_) SendToAll(ExitFrame{});
}

void ControlNode::SendToAll(const ControlFrame& frame) {
  const auto bytes = std::make_shared<const std::string>(Encode(frame));
  for (const auto& [neighbour, link] : links_) SendTo(neighbour, bytes);
}

ControlPlane::Inbox ControlNode::TakeInbox() {
  ControlPlane::Inbox inbox = std::exchange(inbox_, ControlPlane::Inbox{});
  inbox.unlock_requested = unlock_requested_;
  return inbox;
}

void ControlNode::GiveUp(RankId neighbour, const absl::Status& failure) {
  links_.at(neighbour).distrusted = true;
  if (IsParent(neighbour)) {
    Decide(failure);
  } else {
    Propose(failure);
  }
}

void ControlNode::Distrust(RankId neighbour, const absl::Status& damage) {
  GiveUp(neighbour, absl::InternalError(absl::StrCat(ToString(options_.peers[neighbour]),
                                                     " has sent a control message that is none: ", damage.message())));
}

void ControlNode::Lose(RankId neighbour) {
  Link& link = links_.at(neighbour);
  link.lost = true;
  link.queue = FrameQueue();
  if (link.departed || has_departed_) return;
  const absl::string_view how = link.exits ? kExitWithoutShutdown : "is gone: its connection closed";
  GiveUp(neighbour, absl::UnavailableError(absl::StrCat(ToString(options_.peers[neighbour]), " ", how)));
}

void ControlNode::Tick(absl::Duration now) {
  CheckSilence(now);
  last_tick_ = now;
  SendHeartbeats(now);
}

void ControlNode::CheckSilence(absl::Duration now) {
  // This rank itself may have been stopped, for example by a debugger. In that case, it has not yet read the frames
  // that arrived meanwhile.
  const bool was_stopped = now - last_tick_ > std::max(2 * options_.heartbeat, options_.heartbeat_timeout / 2);
  for (auto& [neighbour, link] : links_) {
    if (was_stopped) link.last_heard = now;
    if (link.lost || link.departed || link.distrusted || now - link.last_heard <= options_.heartbeat_timeout) continue;
    GiveUp(neighbour, absl::UnavailableError(absl::StrCat(
                          ToString(options_.peers[neighbour]), " gave no sign of life for ",
                          absl::FormatDuration(options_.heartbeat_timeout), " (host down or network cut?)")));
  }
}

void ControlNode::SendHeartbeats(absl::Duration now) {
  EventRelay::News news = events_.Take(now);
  SendUp(HeartbeatFrame{.events = std::move(news.up)});
  SendDown(HeartbeatFrame{.events = std::move(news.down)});
}

}  // namespace ronda
