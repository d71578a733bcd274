// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/message_rendezvous.h"

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/tree/control_frame.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/rendezvous/rendezvous_codec.h"

namespace ronda {
namespace {

// The pause between two polls for messages.
constexpr absl::Duration kPollInterval = absl::Microseconds(200);

// How much longer the other ranks wait than rank 0, because rank 0 knows best which ranks are missing.
constexpr absl::Duration kGrace = absl::Seconds(5);

// How long rank 0 tries to send the reason why there is no job. An absent rank may never receive it.
constexpr absl::Duration kFinalMessageTimeout = absl::Seconds(1);

// Returns the content of an answer's last frame: empty if there is a member list, otherwise the reason why there is
// none.
std::string EncodeVerdict(const absl::Status& status) { return status.ok() ? "" : Encode(FailureFrame{status}); }

absl::Status DecodeVerdict(const std::string& content, int size) {
  if (content.empty()) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(const ControlFrame frame, DecodeControlFrame(content, size));
  const auto* const verdict = std::get_if<FailureFrame>(&frame);
  if (verdict != nullptr) return verdict->failure;
  return absl::InvalidArgumentError("rendezvous: rank 0's answer is none");
}

}  // namespace

absl::StatusOr<MemberList> MessageRendezvous::Run() {
  end_ = MonotonicTime() + options_.timeout;
  return messages_.rank() == kCoordinatorRank ? Host() : Join();
}

absl::StatusOr<MemberList> MessageRendezvous::Host() {
  const absl::StatusOr<MemberList> member_list = AwaitAll();
  const absl::Status answered = Answer(member_list);
  if (member_list.ok() && !answered.ok()) return answered;
  return member_list;
}

absl::StatusOr<MemberList> MessageRendezvous::AwaitAll() {
  RendezvousTable table({.job_id = options_.job_id,
                         .size = messages_.size(),
                         .epoch = options_.claim.epoch,
                         .coordinator = options_.claim.member});
  RONDA_RETURN_IF_ERROR(Gather(table));
  RONDA_RETURN_IF_ERROR(table.Agreement());
  return table.member_list();
}

absl::Status MessageRendezvous::Gather(RendezvousTable& table) {
  std::vector<FrameLink*> awaited;
  for (RankId rank = 1; rank < messages_.size(); ++rank) {
    awaited.push_back(&links_.emplace_back(messages_, rank));
    RONDA_RETURN_IF_ERROR(awaited.back()->Listen());
  }
  while (!awaited.empty()) {
    const size_t before = awaited.size();
    messages_.Progress();
    for (FrameLink*& link : awaited) {
      RONDA_ASSIGN_OR_RETURN(const bool has_come, ReceiveClaim(*link, table));
      if (has_come) link = nullptr;
    }
    awaited.erase(std::remove(awaited.begin(), awaited.end(), nullptr), awaited.end());
    if (awaited.size() < before) continue;
    if (MonotonicTime() >= end_) return table.DeadlineError(options_.timeout);
    absl::SleepFor(kPollInterval);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageRendezvous::ReceiveClaim(FrameLink& link, RendezvousTable& table) {
  RONDA_ASSIGN_OR_RETURN(const std::optional<LinkFrame> frame, link.PopReceived());
  if (!frame.has_value()) return false;
  v1::JoinRequest request;
  if (!request.ParseFromString(frame->content)) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous: rank ", link.peer(), " sent no claim"));
  }
  RONDA_ASSIGN_OR_RETURN(const JoinClaim claim, DecodeClaim(request));
  if (claim.member.peer.rank != link.peer()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous: MPI's rank ", link.peer(), " says it is ", ToString(claim.member.peer)));
  }
  RONDA_RETURN_IF_ERROR(table.Add(claim));
  return true;
}

absl::Status MessageRendezvous::Answer(const absl::StatusOr<MemberList>& member_list) {
  const std::string text = member_list.ok() ? EncodeMemberList(*member_list).SerializeAsString() : "";
  for (FrameLink& link : links_) {
    for (size_t from = 0; from < text.size(); from += kControlPieceBytes) {
      RONDA_RETURN_IF_ERROR(link.Send({.content = text.substr(from, kControlPieceBytes)}));
    }
    RONDA_RETURN_IF_ERROR(link.Send({.kind = LinkFrame::Kind::kEnd, .content = EncodeVerdict(member_list.status())}));
  }
  return AwaitSent(member_list.ok() ? options_.timeout : kFinalMessageTimeout);
}

absl::Status MessageRendezvous::AwaitSent(absl::Duration timeout) {
  const absl::Duration end = MonotonicTime() + timeout;
  std::vector<FrameLink*> sending;
  for (FrameLink& link : links_) sending.push_back(&link);
  for (;;) {
    messages_.Progress();
    for (FrameLink*& link : sending) {
      RONDA_ASSIGN_OR_RETURN(const std::optional<LinkFrame::Kind> sent, link->PopSent());
      if (sent == LinkFrame::Kind::kEnd) link = nullptr;
    }
    sending.erase(std::remove(sending.begin(), sending.end(), nullptr), sending.end());
    if (sending.empty()) return absl::OkStatus();
    if (MonotonicTime() >= end) {
      return absl::DeadlineExceededError(absl::StrCat(
          "rank ", sending.front()->peer(), " has not taken its answer within ", absl::FormatDuration(timeout)));
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::StatusOr<std::string> MessageRendezvous::AwaitAnswer(FrameLink& link) {
  std::string text;
  for (;;) {
    messages_.Progress();
    RONDA_ASSIGN_OR_RETURN(const std::optional<LinkFrame> frame, link.PopReceived());
    if (frame.has_value() && frame->kind == LinkFrame::Kind::kEnd) {
      RONDA_RETURN_IF_ERROR(DecodeVerdict(frame->content, messages_.size()));
      return text;
    }
    if (frame.has_value()) {
      text += frame->content;
    } else if (MonotonicTime() >= end_ + kGrace) {
      return absl::DeadlineExceededError(absl::StrCat(ToString(options_.claim.member.peer),
                                                      " heard nothing of rank 0 within ",
                                                      absl::FormatDuration(options_.timeout + kGrace)));
    } else {
      absl::SleepFor(kPollInterval);
    }
  }
}

absl::StatusOr<MemberList> MessageRendezvous::Join() {
  FrameLink& link = links_.emplace_back(messages_, kCoordinatorRank);
  RONDA_RETURN_IF_ERROR(link.Listen());
  RONDA_RETURN_IF_ERROR(
      link.Send({.kind = LinkFrame::Kind::kEnd, .content = EncodeClaim(options_.claim).SerializeAsString()}));
  RONDA_RETURN_IF_ERROR(AwaitSent(options_.timeout + kGrace));
  RONDA_ASSIGN_OR_RETURN(const std::string text, AwaitAnswer(link));
  v1::JoinResponse response;
  if (!response.ParseFromString(text)) return absl::InvalidArgumentError("rendezvous: rank 0's answer is none");
  return DecodeMemberList(response, options_.claim);
}

}  // namespace ronda
