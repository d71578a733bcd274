// SPDX-License-Identifier: Apache-2.0

#include "runtime/elastic/member_channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

bool IsMembershipSocket(int fd) {
  int type = 0;
  socklen_t length = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

absl::Status LauncherIsGone(const absl::Status& why) {
  return absl::DataLossError(absl::StrCat(
      "this member's launcher is gone, which alone decides about the members of the job (", why.message(), ")"));
}

// Returns the next message, or nullopt if no message has arrived.
absl::StatusOr<std::optional<LauncherMessage>> Receive(int fd) {
  absl::StatusOr<std::string> text = ReceiveMembershipMessage(fd);
  if (absl::IsUnavailable(text.status())) return LauncherIsGone(text.status());
  RONDA_RETURN_IF_ERROR(text.status());
  if (text->empty()) return std::nullopt;
  RONDA_ASSIGN_OR_RETURN(LauncherMessage message, DecodeLauncherMessage(*text));
  return std::optional(std::move(message));
}

absl::Status NoPlace(const EndNotice& end) {
  return absl::DataLossError(absl::StrCat("the launcher has no place for this member any more: ", end.reason));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemberChannel>> MemberChannel::Open(const EnvironmentReader& environment) {
  const EnvironmentVariables variables(environment);
  const std::optional<std::string> text = variables.Get(kMembershipVariable);
  if (!text) return nullptr;
  int64_t fd = -1;
  RONDA_RETURN_IF_ERROR(
      variables.ReadInteger(kMembershipVariable, {.min = 0, .max = std::numeric_limits<int>::max()}, &fd));
  const int socket = static_cast<int>(fd);
  if (!IsMembershipSocket(socket)) {
    return InvalidVariable(kMembershipVariable.view(), *text,
                           "the descriptor that rondarun gave this process: start the program under it directly, or "
                           "unset the variable");
  }
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  return std::make_unique<MemberChannel>(UniqueFd(socket));
}

absl::StatusOr<EpochPlace> MemberChannel::Join(const JoinRequest& join, absl::Duration timeout) {
  RONDA_RETURN_IF_ERROR(end_);
  request_ = Request::kNone;
  RONDA_RETURN_IF_ERROR(Tell(join));
  const absl::Duration deadline = MonotonicTime() + timeout;
  for (;;) {
    absl::StatusOr<std::optional<LauncherMessage>> message = Receive(socket_.get());
    if (absl::IsDataLoss(message.status())) return end_ = message.status();
    RONDA_RETURN_IF_ERROR(message.status());
    if (!message->has_value()) {
      RONDA_RETURN_IF_ERROR(WaitUntil(deadline, timeout));
      continue;
    }
    if (const auto* end = std::get_if<EndNotice>(&**message)) return end_ = NoPlace(*end);
    // Ignores an earlier request for a change, which the new epoch fulfils.
    auto* place = std::get_if<EpochPlace>(&**message);
    if (place != nullptr && place->epoch > join.last_epoch) return std::move(*place);
  }
}

absl::Status MemberChannel::TellMet(int64_t epoch) { return Tell(EpochMet{.epoch = epoch}); }

absl::Status MemberChannel::Leave() {
  if (!end_.ok() || std::exchange(is_leaving_, true)) return absl::OkStatus();
  return Tell(LeaveRequest{});
}

absl::StatusOr<MemberChannel::Request> MemberChannel::Look() {
  if (!end_.ok()) return Request::kEnd;
  RONDA_ASSIGN_OR_RETURN(const std::optional<LauncherMessage> message, Receive(socket_.get()));
  // Ignores a place, because the launcher assigns places only on request, and Join() receives these.
  if (!message || std::holds_alternative<EpochPlace>(*message)) return request_;
  request_ = Request::kChange;
  if (const auto* end = std::get_if<EndNotice>(&*message)) {
    end_ = NoPlace(*end);
    request_ = Request::kEnd;
  }
  return request_;
}

absl::Status MemberChannel::Tell(const MemberMessage& message) {
  RONDA_RETURN_IF_ERROR(end_);
  const absl::Status sent = SendMembershipMessage(socket_.get(), Encode(message));
  return sent.ok() ? sent : LauncherIsGone(sent);
}

absl::Status MemberChannel::WaitUntil(absl::Duration deadline, absl::Duration timeout) const {
  for (;;) {
    const absl::Duration left = deadline - MonotonicTime();
    if (left <= absl::ZeroDuration()) {
      return absl::DataLossError(
          absl::StrCat("the launcher has given this member no place within ", absl::FormatDuration(timeout)));
    }
    pollfd event = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    RONDA_ASSIGN_OR_RETURN(const int ready, PollDescriptors({&event, 1}, left));
    if (ready > 0) return absl::OkStatus();
  }
}

}  // namespace ronda
