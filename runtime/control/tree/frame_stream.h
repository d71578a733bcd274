// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_TREE_FRAME_STREAM_H_
#define RONDA_RUNTIME_CONTROL_TREE_FRAME_STREAM_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

// Splits frames of any length into short pieces, and reassembles frames from pieces.

// The size of a piece. Each piece that arrives is a sign of life, so sending one piece must not take longer than the
// heartbeat timeout. In the default timeout of 10 s, a slow link of 400 kbit/s moves about one piece.
inline constexpr size_t kControlPieceBytes = size_t{512} << 10;

inline constexpr size_t kFrameHeaderBytes = 4;

// The bytes of a frame; shared, because one frame may be sent to many ranks.
using FrameBytes = std::shared_ptr<const std::string>;

// Frames that wait to be sent, in their order. Thread-compatible.
class FrameQueue {
 public:
  void Push(FrameBytes frame) { frames_.push_back(std::move(frame)); }
  bool empty() const { return frames_.empty(); }

  // Removes and returns the next kControlPieceBytes bytes, or all queued bytes if there are fewer.
  std::string PopPiece();

  // Removes all frames, except the first one if PopPiece has already returned a part of it.
  void DropUnbegun();

 private:
  std::deque<FrameBytes> frames_;
  size_t taken_ = 0;  // bytes taken of the first frame, its header included
};

// Assembles frames from pieces. Thread-compatible.
class FrameAssembler {
 public:
  explicit FrameAssembler(size_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  void Append(absl::string_view piece);

  // Moves the next frame to `frame`. Returns false if the frame has not arrived completely.
  // Errors: INVALID_ARGUMENT if a frame is longer than allowed. After an error, all further bytes are meaningless.
  absl::StatusOr<bool> Next(std::string* frame);

 private:
  const size_t max_frame_bytes_;
  std::string bytes_;
  size_t begin_ = 0;  // of the next frame's header in bytes_
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_FRAME_STREAM_H_
