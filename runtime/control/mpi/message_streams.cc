// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/mpi/message_streams.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/tree/control_core.h"

namespace ronda {
namespace {

// A refusal as the content of a frame: the code, then the text.
std::string EncodeEndStatus(const absl::Status& status) {
  return absl::StrCat(std::string(1, static_cast<char>(status.code())), status.message());
}

absl::Status DecodeEndStatus(const std::string& content) {
  if (content.empty() || content.front() == '\0') return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(content.front()), content.substr(1));
}

}  // namespace

// The streams' lock guards its variable members.
struct MessageStreams::Stream final : ControlStream {
  enum class Side { kParents, kChilds };

  Stream(MessageStreams& streams, RankId peer, Side side)
      : streams(streams), side(side), link(*streams.messages_, peer) {}

  void Open(std::shared_ptr<ControlCore> new_owner) override { streams.Open(*this, std::move(new_owner)); }
  void Write(std::string piece) override {
    streams.Send(*this, {.kind = LinkFrame::Kind::kPiece, .content = std::move(piece)});
  }
  void End(const absl::Status& status) override {
    streams.Send(*this, {.kind = LinkFrame::Kind::kEnd, .content = EncodeEndStatus(status)});
  }

  MessageStreams& streams;
  const Side side;
  std::shared_ptr<ControlCore> owner;  // constant from Open on
  FrameLink link;
  int unwritten = 0;          // pieces
  bool is_ending = false;     // End has been called
  bool has_end_gone = false;  // and the other end will receive it
  bool have_reads_ended = false;
  bool is_broken = false;  // the library has returned an error: nothing moves any more
  bool is_closed = false;
  absl::Status end_status;  // from the other end
};

MessageStreams::MessageStreams(std::unique_ptr<PointToPoint> messages) : messages_(std::move(messages)) {
  RecordMovement();
}

MessageStreams::~MessageStreams() = default;

ControlStream* MessageStreams::StreamTo(RankId parent) {
  MutexLock lock(&mu_);
  return streams_.emplace_back(std::make_unique<Stream>(*this, parent, Stream::Side::kChilds)).get();
}

absl::Status MessageStreams::Accept(const std::vector<RankId>& children, std::shared_ptr<ControlCore> owner) {
  MutexLock lock(&mu_);
  acceptor_ = std::move(owner);
  for (const RankId child : children) {
    streams_.push_back(std::make_unique<Stream>(*this, child, Stream::Side::kParents));
    RONDA_RETURN_IF_ERROR(streams_.back()->link.Listen());
  }
  return absl::OkStatus();
}

void MessageStreams::RecordMovement() {
  last_movement_ns_.store(absl::ToInt64Nanoseconds(MonotonicTime()), std::memory_order_relaxed);
}

void MessageStreams::Open(Stream& stream, std::shared_ptr<ControlCore> owner) {
  {
    MutexLock lock(&mu_);
    stream.owner = std::move(owner);
    if (stream.side == Stream::Side::kParents || is_stopped_) return;
    if (const absl::Status status = stream.link.Listen(); !status.ok()) RecordBreakLocked(stream, status);
  }
  Send(stream, {.kind = LinkFrame::Kind::kOpen});
}

void MessageStreams::Send(Stream& stream, LinkFrame frame) {
  RecordMovement();
  MutexLock lock(&mu_);
  if (frame.kind == LinkFrame::Kind::kPiece) ++stream.unwritten;
  if (frame.kind == LinkFrame::Kind::kEnd) stream.is_ending = true;
  if (stream.is_broken || is_stopped_) return;
  if (const absl::Status status = stream.link.Send(std::move(frame)); !status.ok()) RecordBreakLocked(stream, status);
}

void MessageStreams::RecordBreakLocked(Stream& stream, const absl::Status& status) {
  stream.is_broken = true;
  Log(LogLevel::kWarning, messages_->rank(),
      absl::StrCat("control messages with rank ", stream.link.peer(), ": ", status.message()));
}

void MessageStreams::CollectReceivedLocked(Stream& stream, std::vector<Event>& events) {
  while (!stream.is_broken) {
    absl::StatusOr<std::optional<LinkFrame>> frame = stream.link.PopReceived();
    if (!frame.ok()) RecordBreakLocked(stream, frame.status());
    if (!frame.ok() || !frame->has_value()) return;
    switch ((*frame)->kind) {
      case LinkFrame::Kind::kOpen:
        events.push_back({.kind = Event::Kind::kAccepted, .stream = &stream});
        break;
      case LinkFrame::Kind::kPiece:
        events.push_back({.kind = Event::Kind::kPiece, .stream = &stream, .piece = std::move((*frame)->content)});
        break;
      case LinkFrame::Kind::kEnd:
        stream.end_status = DecodeEndStatus((*frame)->content);
        stream.have_reads_ended = true;
        events.push_back({.kind = Event::Kind::kReadsEnd, .stream = &stream});
        break;
    }
  }
}

void MessageStreams::CollectSentLocked(Stream& stream, std::vector<Event>& events) {
  while (!stream.is_broken) {
    const absl::StatusOr<std::optional<LinkFrame::Kind>> sent = stream.link.PopSent();
    if (!sent.ok()) RecordBreakLocked(stream, sent.status());
    if (!sent.ok() || !sent->has_value()) break;
    if (*sent == LinkFrame::Kind::kEnd) stream.has_end_gone = true;
    if (*sent != LinkFrame::Kind::kPiece) continue;
    --stream.unwritten;
    events.push_back({.kind = Event::Kind::kWritten, .stream = &stream});
  }
  if (!stream.is_broken) return;
  for (; stream.unwritten > 0; --stream.unwritten) events.push_back({.kind = Event::Kind::kWritten, .stream = &stream});
  if (stream.have_reads_ended) return;
  stream.have_reads_ended = true;
  events.push_back({.kind = Event::Kind::kReadsEnd, .stream = &stream});
}

void MessageStreams::CollectLocked(std::vector<Event>& events) {
  // First the owners get received frames: while a message is under way to the parent, equal reports of children become
  // one.
  for (const auto& stream : streams_) CollectReceivedLocked(*stream, events);
  for (const auto& stream : streams_) CollectSentLocked(*stream, events);
  for (const auto& stream : streams_) {
    const bool is_over = stream->have_reads_ended && stream->is_ending && (stream->has_end_gone || stream->is_broken);
    if (!is_over || stream->is_closed) continue;
    events.push_back({.kind = Event::Kind::kClosed, .stream = stream.get()});
    stream->is_closed = true;  // after the event, which may find no memory
  }
}

const std::vector<std::unique_ptr<MessageStreams::Stream>>& MessageStreams::streams_after_stop() const
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  RONDA_CHECK(IsStopped());
  return streams_;
}

std::shared_ptr<ControlCore> MessageStreams::acceptor() {
  MutexLock lock(&mu_);
  return acceptor_;
}

void MessageStreams::Deliver(Event& event) {
  Stream& stream = *event.stream;
  if (event.kind == Event::Kind::kAccepted) return acceptor()->OnAccepted(&stream);
  // A refused stream has no owner to notify.
  const std::shared_ptr<ControlCore> owner = stream.owner;
  if (owner == nullptr) return;
  switch (event.kind) {
    case Event::Kind::kPiece:
      return owner->OnPiece(&stream, event.piece);
    case Event::Kind::kReadsEnd:
      return owner->OnReadsEnd(&stream);
    case Event::Kind::kWritten:
      return owner->OnWritten(&stream);
    case Event::Kind::kClosed:
      return owner->OnClosed(&stream, stream.end_status);
    case Event::Kind::kAccepted:
      return;
  }
}

MessageStreams::Movement MessageStreams::Poll() {
  polls_.fetch_add(1, std::memory_order_relaxed);
  std::vector<Event> events;
  bool has_memory = true;
  {
    MutexLock lock(&mu_);
    if (is_polled_ || is_stopped_) return Movement::kNone;
    try {
      CollectLocked(events);
    } catch (const std::bad_alloc&) {
      has_memory = false;
    }
    if (events.empty() && has_memory) return Movement::kNone;
    is_polled_ = true;
  }
  RecordMovement();
  for (Event& event : events) Deliver(event);
  if (!has_memory) acceptor()->RunOutOfMemory();
  MutexLock lock(&mu_);
  is_polled_ = false;
  polling_ended_.NotifyAll();
  return Movement::kSome;
}

bool MessageStreams::AreClosed() const {
  MutexLock lock(&mu_);
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->is_closed; });
}

void MessageStreams::Stop() {
  MutexLock lock(&mu_);
  while (is_polled_) polling_ended_.Wait(&mu_);
  is_stopped_ = true;
}

bool MessageStreams::IsStopped() const {
  MutexLock lock(&mu_);
  return is_stopped_;
}

// Needs no memory, because a rank that has none left also comes here.
MessageStreams::Rest MessageStreams::Cut() {
  Rest rest = Rest::kNothing;
  for (const auto& stream : streams_after_stop()) {
    {
      MutexLock lock(&mu_);
      if (stream->link.IsUnderWay()) rest = Rest::kTransfers;
      if (std::exchange(stream->is_closed, true)) continue;
      if (stream->end_status.ok()) stream->end_status = given_up_;
    }
    Event closed = {.kind = Event::Kind::kClosed, .stream = stream.get()};
    Deliver(closed);
  }
  return rest;
}

}  // namespace ronda
