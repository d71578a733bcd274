#include "runtime/control/mpi/frame_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/tree/frame_stream.h"

namespace ronda {

absl::Status FrameLink::Listen() { return BeginReceivingCard(); }

absl::Status FrameLink::Send(Parcel parcel) {
  outgoing_.push_back(std::move(parcel));
  return outgoing_.size() == 1 ? BeginSending() : absl::OkStatus();
}

absl::Status FrameLink::BeginSending() {
  const Parcel& parcel = outgoing_.front();
  const size_t bytes = parcel.content.size();
  const size_t on_card = std::min(bytes, kCardContent);
  card_out_.kind = static_cast<uint32_t>(parcel.kind);
  card_out_.bytes = static_cast<uint32_t>(bytes);
  std::memcpy(card_out_.content, parcel.content.data(), on_card);
  RONDA_ASSIGN_OR_RETURN(sending_[0], messages_.Send(&card_out_, sizeof(card_out_), peer_));
  sending_count_ = 1;
  if (bytes == on_card) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(sending_[1], messages_.Send(parcel.content.data() + on_card, bytes - on_card, peer_));
  sending_count_ = 2;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Parcel::Kind>> FrameLink::TakeSent() {
  if (outgoing_.empty()) return std::nullopt;
  RONDA_ASSIGN_OR_RETURN(const bool is_complete, messages_.Test({sending_, sending_count_}));
  if (!is_complete) return std::nullopt;
  const Parcel::Kind kind = outgoing_.front().kind;
  outgoing_.pop_front();
  if (!outgoing_.empty()) RONDA_RETURN_IF_ERROR(BeginSending());
  return kind;
}

absl::Status FrameLink::BeginReceivingCard() {
  RONDA_ASSIGN_OR_RETURN(receipt_, messages_.Receive(&card_in_, sizeof(card_in_), peer_));
  receiving_ = Receiving::kCard;
  return absl::OkStatus();
}

absl::Status FrameLink::CheckCard() const {
  const bool is_kind = card_in_.kind >= static_cast<uint32_t>(Parcel::Kind::kOpen) &&
                       card_in_.kind <= static_cast<uint32_t>(Parcel::Kind::kEnd);
  if (is_kind && card_in_.bytes <= kControlPieceBytes) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("control: a parcel of kind ", card_in_.kind, " with ", card_in_.bytes, " bytes"));
}

absl::StatusOr<std::optional<Parcel>> FrameLink::TakeReceived() {
  if (receiving_ == Receiving::kNothing) return std::nullopt;
  RONDA_ASSIGN_OR_RETURN(const bool is_complete, messages_.Test({&receipt_, 1}));
  if (!is_complete) return std::nullopt;
  if (receiving_ == Receiving::kCard) {
    receiving_ = Receiving::kNothing;
    RONDA_RETURN_IF_ERROR(CheckCard());
    if (card_in_.bytes > kCardContent) {
      rest_in_.resize(card_in_.bytes - kCardContent);
      RONDA_ASSIGN_OR_RETURN(receipt_, messages_.Receive(rest_in_.data(), rest_in_.size(), peer_));
      receiving_ = Receiving::kRest;
      return std::nullopt;
    }
  }
  return FinishReceiving();
}

absl::StatusOr<Parcel> FrameLink::FinishReceiving() {
  receiving_ = Receiving::kNothing;
  Parcel parcel{.kind = static_cast<Parcel::Kind>(card_in_.kind)};
  parcel.content.reserve(card_in_.bytes);
  parcel.content.assign(card_in_.content, std::min<size_t>(card_in_.bytes, kCardContent));
  parcel.content += rest_in_;
  rest_in_.clear();
  if (parcel.kind != Parcel::Kind::kEnd) RONDA_RETURN_IF_ERROR(BeginReceivingCard());
  return parcel;
}

}  // namespace ronda
