// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/tree/frame_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

std::string Header(size_t frame_bytes) {
  std::string header;
  for (size_t i = 0; i < kFrameHeaderBytes; ++i) header.push_back(static_cast<char>(frame_bytes >> (8 * i)));
  return header;
}

size_t ReadHeader(absl::string_view bytes) {
  size_t length = 0;
  for (size_t i = 0; i < kFrameHeaderBytes; ++i)
    length |= static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return length;
}

}  // namespace

std::string FrameQueue::PopPiece() {
  std::string piece;
  while (!frames_.empty() && piece.size() + kFrameHeaderBytes < kControlPieceBytes) {
    const std::string& frame = *frames_.front();
    if (taken_ == 0) {
      piece += Header(frame.size());
      taken_ = kFrameHeaderBytes;
    }
    const size_t from = taken_ - kFrameHeaderBytes;
    const size_t count = std::min(frame.size() - from, kControlPieceBytes - piece.size());
    piece.append(frame, from, count);
    taken_ += count;
    if (from + count < frame.size()) break;
    frames_.pop_front();
    taken_ = 0;
  }
  return piece;
}

void FrameQueue::DropUnbegun() { frames_.erase(frames_.begin() + (taken_ > 0 ? 1 : 0), frames_.end()); }

void FrameAssembler::Append(absl::string_view piece) {
  bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_.append(piece.data(), piece.size());
}

absl::StatusOr<bool> FrameAssembler::Next(std::string* frame) {
  const absl::string_view rest = absl::string_view(bytes_).substr(begin_);
  if (rest.size() < kFrameHeaderBytes) return false;
  const size_t length = ReadHeader(rest);
  if (length > max_frame_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("control: a message of ", length, " bytes; should be at most ", max_frame_bytes_));
  }
  if (rest.size() - kFrameHeaderBytes < length) return false;
  frame->assign(rest.data() + kFrameHeaderBytes, length);
  begin_ += kFrameHeaderBytes + length;
  return true;
}

}  // namespace ronda
