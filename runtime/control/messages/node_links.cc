// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/messages/node_links.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/peer.h"

namespace ronda {
namespace {

// Each call of Move looks for messages at most this many times.
constexpr int kMostLooks = 16;

}  // namespace

NodeLinks::NodeLinks(Options options, std::unique_ptr<PointToPoint> messages)
    : options_(std::move(options)), messages_(std::move(messages)), node_(options_.node) {
  for (const RankId neighbour : options_.node.tree.Neighbours(options_.node.rank)) {
    const auto& absent = options_.absent;
    if (std::find(absent.begin(), absent.end(), neighbour) == absent.end()) links_.emplace_back(*messages_, neighbour);
  }
}

void NodeLinks::Open() {
  for (Link& link : links_) {
    if (const absl::Status status = link.frames.Listen(); !status.ok()) Break(link, status);
    Send(link, {.kind = LinkFrame::Kind::kOpen, .content = options_.job_id});
  }
}

bool NodeLinks::Move() {
  bool has_moved = false;
  bool looks_again = true;
  for (int looks = 0; looks_again && looks < kMostLooks; ++looks) {
    messages_->Progress();
    looks_again = false;
    // Receives before it completes sends, so that equal reports of children are merged while an earlier message to the
    // parent is still being sent.
    for (Link& link : links_) looks_again |= ReceiveFrom(link);
    has_moved |= looks_again;
  }
  for (Link& link : links_) has_moved |= CompleteSends(link);
  return has_moved;
}

bool NodeLinks::ReceiveFrom(Link& link) {
  bool has_moved = false;
  while (!link.is_broken) {
    absl::StatusOr<std::optional<LinkFrame>> frame = link.frames.PopReceived();
    if (frame.ok() && !frame->has_value()) break;
    has_moved = true;
    if (frame.ok()) {
      Receive(link, **std::move(frame));
    } else {
      Break(link, frame.status());
    }
  }
  return has_moved;
}

void NodeLinks::Receive(Link& link, LinkFrame frame) {
  switch (frame.kind) {
    case LinkFrame::Kind::kOpen:
      return ReceiveOpen(link, frame.content);
    case LinkFrame::Kind::kPiece:
      return ReceivePiece(link, frame.content);
    case LinkFrame::Kind::kEnd:
      link.has_end_come = true;
      if (link.is_attached) node_.Lose(link.frames.peer());
  }
}

void NodeLinks::ReceiveOpen(Link& link, absl::string_view job_id) {
  const Peer& peer = options_.node.peers[static_cast<size_t>(link.frames.peer())];
  if (link.is_open) return Break(link, absl::InternalError("control: a link was opened twice"));
  if (job_id != options_.job_id) {
    return Break(link, absl::InvalidArgumentError(absl::StrCat(ToString(peer), " belongs to job ", job_id,
                                                               ", but this rank to job ", options_.job_id,
                                                               ": start all ranks of a job together")));
  }
  link.is_open = true;
  Attach(link);
}

void NodeLinks::Attach(Link& link) {
  if (!std::exchange(link.is_attached, true)) node_.Attach(link.frames.peer(), MonotonicTime());
}

void NodeLinks::ReceivePiece(Link& link, absl::string_view piece) {
  const RankId peer = link.frames.peer();
  if (!link.is_open) return Break(link, absl::InternalError("control: a message came before the link was opened"));
  if (!node_.IsTrusted(peer)) return;
  const absl::Duration now = MonotonicTime();
  node_.RecordSignOfLife(peer, now);
  link.assembler.Append(piece);
  std::string frame;
  absl::StatusOr<bool> more = link.assembler.Next(&frame);
  for (; more.ok() && *more; more = link.assembler.Next(&frame)) node_.Receive(peer, std::move(frame), now);
  if (!more.ok()) node_.Distrust(peer, more.status());
}

bool NodeLinks::CompleteSends(Link& link) {
  bool has_moved = false;
  while (!link.is_broken) {
    const absl::StatusOr<std::optional<LinkFrame::Kind>> sent = link.frames.PopSent();
    if (sent.ok() && !sent->has_value()) break;
    has_moved = true;
    if (!sent.ok()) {
      BreakSending(link, sent.status());
    } else if (**sent == LinkFrame::Kind::kEnd) {
      link.has_end_gone = true;
    }
  }
  return has_moved;
}

void NodeLinks::Flush() {
  // When a link breaks, the node creates frames for other links. Some of these links have already been flushed, so the
  // loop runs again.
  do {
    has_broken_ = false;
    for (Link& link : links_) FlushTo(link);
  } while (has_broken_);
}

void NodeLinks::FlushTo(Link& link) {
  // A neighbour may open its link late, after this rank has gone. It must then find the failure in the link.
  if (is_closing_ && !link.is_broken && !node_.failure().ok()) Attach(link);
  CompleteSends(link);
  while (!link.is_broken && !link.is_ending && !link.frames.IsSending()) {
    std::optional<LinkFrame> frame = NextFrame(link);
    if (!frame.has_value()) break;
    Send(link, *std::move(frame));
    CompleteSends(link);
  }
}

void NodeLinks::Send(Link& link, LinkFrame frame) {
  if (link.is_broken) return;
  if (frame.kind == LinkFrame::Kind::kEnd) link.is_ending = true;
  if (const absl::Status status = link.frames.Send(std::move(frame)); !status.ok()) BreakSending(link, status);
}

std::optional<LinkFrame> NodeLinks::NextFrame(Link& link) {
  std::string piece = link.is_attached ? node_.PopPiece(link.frames.peer()) : "";
  if (!piece.empty()) return LinkFrame{.kind = LinkFrame::Kind::kPiece, .content = std::move(piece)};
  if (IsToEnd(link)) return LinkFrame{.kind = LinkFrame::Kind::kEnd, .content = ""};
  return std::nullopt;
}

bool NodeLinks::IsToEnd(const Link& link) const {
  const bool is_to_parent = link.frames.peer() < options_.node.rank;
  if (link.has_end_come || !is_to_parent) return link.has_end_come;
  // Before the link is attached, an end frame would overtake the frame with this rank's failure.
  return link.is_attached && (is_closing_ || node_.HasDeparted(link.frames.peer()));
}

void NodeLinks::BreakSending(Link& link, const absl::Status& why) {
  do {
    messages_->Progress();
  } while (ReceiveFrom(link));
  Break(link, why);
  // The calls of Progress have also read frames from the other links. Those must be received now, because poll()
  // reports no descriptor as ready for them.
  for (Link& other : links_) ReceiveFrom(other);
}

void NodeLinks::Break(Link& link, const absl::Status& why) {
  if (std::exchange(link.is_broken, true)) return;
  has_broken_ = true;
  const RankId peer = link.frames.peer();
  Log(LogLevel::kInfo, options_.node.rank, absl::StrCat("control messages with rank ", peer, ": ", why.message()));
  if (link.has_end_come) return;
  if (link.is_attached) return node_.Lose(peer);
  if (!absl::IsUnavailable(why)) return node_.Propose(why);
  node_.Propose(
      absl::UnavailableError(absl::StrCat(ToString(options_.node.peers[static_cast<size_t>(peer)]),
                                          " went away before all ranks had connected (", why.message(), ")")));
}

bool NodeLinks::HaveClosed() const {
  return std::all_of(links_.begin(), links_.end(), [this](const Link& link) {
    const bool is_given_up = link.is_attached && !link.has_end_come && !node_.IsTrusted(link.frames.peer());
    return link.HasEnded() || is_given_up;
  });
}

bool NodeLinks::HaveSentAll() const {
  return std::none_of(links_.begin(), links_.end(), [this](const Link& link) {
    const RankId peer = link.frames.peer();
    return link.is_attached && node_.IsTrusted(peer) && (link.frames.IsSending() || node_.HasToSay(peer));
  });
}

bool NodeLinks::HasUnlistedOutput() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& link) {
    return !link.is_broken && link.frames.IsSending() && !link.is_listed_for_output;
  });
}

bool NodeLinks::IsUnderWay() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& link) { return link.frames.IsUnderWay(); });
}

void NodeLinks::ListDescriptors(std::vector<pollfd>* descriptors) {
  for (Link& link : links_) {
    link.is_listed_for_output = link.frames.IsSending();
    const int events = (link.frames.IsSending() ? POLLOUT : 0) | (link.frames.IsReceiving() ? POLLIN : 0);
    if (link.is_broken || events == 0) continue;
    descriptors->push_back(
        {.fd = messages_->DescriptorOf(link.frames.peer()), .events = static_cast<int16_t>(events), .revents = 0});
  }
}

}  // namespace ronda
