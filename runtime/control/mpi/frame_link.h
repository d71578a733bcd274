#ifndef RONDA_RUNTIME_CONTROL_MPI_FRAME_LINK_H_
#define RONDA_RUNTIME_CONTROL_MPI_FRAME_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/types.h"
#include "runtime/collectives/messages/point_to_point.h"

namespace ronda {

// A frame between two ranks.
struct LinkFrame {
  enum class Kind : uint32_t { kOpen = 1, kPiece = 2, kEnd = 3 } kind = Kind::kPiece;
  std::string content;
};

// Frames of any length to and from one other rank, in order, over messages whose receiver names the size.
//
// A frame is a message of a fixed size, the header, which tells the length and has room for the content of most frames;
// a longer content goes on in a second message. So the receiver always knows the next size, no call asks the library
// which messages there are, and a report of a cached step is a single short message.
//
// Both ends have the same byte order: ranks compare it when they meet.
//
// Thread-compatible. Its buffers are the library's while a transfer is under way: it must not be destroyed then, unless
// no more calls are made.
class FrameLink {
 public:
  // `messages` outlives it.
  FrameLink(PointToPoint& messages, RankId peer) : messages_(messages), peer_(peer) {}

  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  RankId peer() const { return peer_; }

  // Begins to receive. To be called once.
  absl::Status Listen();

  // Queues a frame. Errors: the library's.
  absl::Status Send(LinkFrame frame);

  // The kind of the next frame that has gone, the oldest first, or nothing. Errors: the library's.
  absl::StatusOr<std::optional<LinkFrame::Kind>> TakeSent();

  // The next frame, if it has come. An end is the last one.
  // Errors: INTERNAL if it makes no sense; the library's.
  absl::StatusOr<std::optional<LinkFrame>> TakeReceived();

  // Whether the library has any of the buffers.
  bool IsUnderWay() const { return receiving_ != Receiving::kNothing || !outgoing_.empty(); }

 private:
  static constexpr size_t kHeaderContent = 248;
  struct Header {
    uint32_t kind;
    uint32_t bytes;  // of the content
    char content[kHeaderContent];
  };
  enum class Receiving { kNothing, kHeader, kRest };

  absl::Status BeginSending();
  absl::Status BeginReceivingHeader();
  absl::Status CheckHeader() const;
  absl::StatusOr<LinkFrame> FinishReceiving();

  PointToPoint& messages_;
  const RankId peer_;

  std::deque<LinkFrame> outgoing_;  // the first is under way
  Header header_out_ = {};
  PointToPoint::Request sending_[2] = {};
  size_t sending_count_ = 0;

  Receiving receiving_ = Receiving::kNothing;
  Header header_in_ = {};
  std::string rest_in_;
  PointToPoint::Request receipt_ = {};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MPI_FRAME_LINK_H_
