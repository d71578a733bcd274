// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/messages/frame_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/tree/frame_stream.h"

namespace ronda {

absl::Status FrameLink::Listen() { return BeginReceivingHeader(); }

absl::Status FrameLink::Send(LinkFrame frame) {
  outgoing_.push_back(std::move(frame));
  return outgoing_.size() == 1 ? BeginSending() : absl::OkStatus();
}

absl::Status FrameLink::BeginSending() {
  sending_count_ = 0;
  const LinkFrame& frame = outgoing_.front();
  const size_t bytes = frame.content.size();
  const size_t in_header = std::min(bytes, kHeaderContent);
  header_out_.kind = static_cast<uint32_t>(frame.kind);
  header_out_.bytes = static_cast<uint32_t>(bytes);
  std::memcpy(header_out_.content, frame.content.data(), in_header);
  RONDA_ASSIGN_OR_RETURN(sending_[0], messages_.Send(&header_out_, sizeof(header_out_), peer_));
  sending_count_ = 1;
  if (bytes == in_header) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(sending_[1], messages_.Send(frame.content.data() + in_header, bytes - in_header, peer_));
  sending_count_ = 2;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<LinkFrame::Kind>> FrameLink::PopSent() {
  if (outgoing_.empty()) return std::nullopt;
  RONDA_ASSIGN_OR_RETURN(const bool is_complete, messages_.Look({sending_, sending_count_}));
  if (!is_complete) return std::nullopt;
  const LinkFrame::Kind kind = outgoing_.front().kind;
  outgoing_.pop_front();
  if (!outgoing_.empty()) RONDA_RETURN_IF_ERROR(BeginSending());
  return kind;
}

absl::Status FrameLink::BeginReceivingHeader() {
  RONDA_ASSIGN_OR_RETURN(receipt_, messages_.Receive(&header_in_, sizeof(header_in_), peer_));
  receiving_ = Receiving::kHeader;
  return absl::OkStatus();
}

absl::Status FrameLink::CheckHeader() const {
  const bool is_kind = header_in_.kind >= static_cast<uint32_t>(LinkFrame::Kind::kOpen) &&
                       header_in_.kind <= static_cast<uint32_t>(LinkFrame::Kind::kEnd);
  if (is_kind && header_in_.bytes <= kControlPieceBytes) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("control: a frame of kind ", header_in_.kind, " with ", header_in_.bytes, " bytes"));
}

absl::StatusOr<std::optional<LinkFrame>> FrameLink::PopReceived() {
  if (receiving_ == Receiving::kNothing) return std::nullopt;
  RONDA_ASSIGN_OR_RETURN(const bool is_complete, messages_.Look({&receipt_, 1}));
  if (!is_complete) return std::nullopt;
  if (receiving_ == Receiving::kHeader) {
    receiving_ = Receiving::kNothing;
    RONDA_RETURN_IF_ERROR(CheckHeader());
    if (header_in_.bytes > kHeaderContent) {
      rest_in_.resize(header_in_.bytes - kHeaderContent);
      RONDA_ASSIGN_OR_RETURN(receipt_, messages_.Receive(rest_in_.data(), rest_in_.size(), peer_));
      receiving_ = Receiving::kRest;
      return std::nullopt;
    }
  }
  return FinishReceiving();
}

absl::StatusOr<LinkFrame> FrameLink::FinishReceiving() {
  receiving_ = Receiving::kNothing;
  LinkFrame frame{.kind = static_cast<LinkFrame::Kind>(header_in_.kind)};
  frame.content.reserve(header_in_.bytes);
  frame.content.assign(header_in_.content, std::min<size_t>(header_in_.bytes, kHeaderContent));
  frame.content += rest_in_;
  rest_in_.clear();
  if (frame.kind != LinkFrame::Kind::kEnd) RONDA_RETURN_IF_ERROR(BeginReceivingHeader());
  return frame;
}

}  // namespace ronda
