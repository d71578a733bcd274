// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MESSAGES_FRAME_LINK_H_
#define RONDA_RUNTIME_CONTROL_MESSAGES_FRAME_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/types.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// A frame that one rank sends to another rank through a FrameLink.
struct LinkFrame {
  enum class Kind : uint32_t { kOpen = 1, kPiece = 2, kEnd = 3 } kind = Kind::kPiece;
  std::string content;
};

// Sends frames of any length to one other rank, and receives frames from it, in order. The frames travel as messages,
// whose size the receiver must know in advance.
//
// A frame begins with a header, which is a message of a fixed size. The header contains the length of the content, and
// has room for the content of most frames. If the content is longer, the rest follows in a second message. So the
// receiver always knows the size of the next message, and need not query the library. If all tensors of a training step
// are cached, a rank's report is a single short message.
//
// Both ends of a link use the same byte order: ranks compare it when they connect. The pop functions do not move data:
// the caller must first call PointToPoint::Progress, which lets the library move data.
//
// Thread-compatible. While IsUnderWay() returns true, the library uses this object's buffers. So the object must not be
// destroyed, unless the library is never called again.
class FrameLink {
 public:
  // `messages` must outlive this object.
  FrameLink(PointToPoint& messages, RankId peer) : messages_(messages), peer_(peer) {}

  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  RankId peer() const { return peer_; }

  // Begins to receive frames. Must be called exactly once.
  absl::Status Listen();

  // Queues a frame. Errors: the library's errors.
  absl::Status Send(LinkFrame frame);

  // Removes the oldest queued frame and returns its kind, if the frame has been sent. Otherwise returns nullopt.
  // Errors: the library's errors.
  absl::StatusOr<std::optional<LinkFrame::Kind>> PopSent();

  // Returns the next frame if it has arrived. A frame of kind kEnd is the last frame.
  // Errors: INTERNAL if the frame is malformed; the library's errors.
  absl::StatusOr<std::optional<LinkFrame>> PopReceived();

  // Returns whether PopSent still has queued frames to return.
  bool IsSending() const { return !outgoing_.empty(); }
  // Returns whether a frame from the peer is expected.
  bool IsReceiving() const { return receiving_ != Receiving::kNothing; }
  // Returns whether the library still uses any of the buffers.
  bool IsUnderWay() const { return IsReceiving() || IsSending(); }

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

#endif  // RONDA_RUNTIME_CONTROL_MESSAGES_FRAME_LINK_H_
