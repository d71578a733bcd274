// SPDX-License-Identifier: Apache-2.0

// The messages between a member of an elastic job and its launcher. The launcher alone decides which processes are
// members.
//
// A member is a process that the launcher has started. A member's number never changes, but its rank may differ in
// every epoch. The member and the launcher each have one end of a SOCK_SEQPACKET socket pair. The member and the
// launcher send one message per packet, as text:
//
//   member                                      launcher
//   join <last epoch> <step> <reason>   ->
//                                       <-      place <epoch> <rank> <size> ... <address>
//   met <epoch>                         ->
//   <-      change            the members of the next epoch differ
//   leave                               ->                        this member wants to leave
//   join ...                            ->                        at the end of its step
//   <-      end <reason>      the member has no place any more
//
// Each side checks every message like any other input, because the other side may have another version of Ronda, or may
// be the user's own program.
#ifndef RONDA_RUNTIME_ELASTIC_MEMBERSHIP_MESSAGE_H_
#define RONDA_RUNTIME_ELASTIC_MEMBERSHIP_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/peer.h"
#include "runtime/base/variable_name.h"

namespace ronda {

// The environment variable that contains the descriptor of the member's end of the socket pair.
inline constexpr VariableName kMembershipVariable = "RONDA_MEMBERSHIP_FD";

// The longest message. A reason that would make a message longer is cut.
inline constexpr size_t kMaxMembershipMessage = 4096;

// The member has left its epoch, and wants a place in the next one.
struct JoinRequest {
  int64_t last_epoch = -1;  // the member's last epoch; -1: none yet
  int64_t step = -1;        // the last step that is complete in its memory; -1: none
  std::string reason;       // the failure that ended the epoch for the member, in one line; empty: none

  bool operator==(const JoinRequest&) const = default;
};

// The member reports that all members of the epoch have connected to each other.
struct EpochMet {
  int64_t epoch = 0;

  bool operator==(const EpochMet&) const = default;
};

// The member wants no place after the current epoch, because it got SIGTERM, or because its program has asked to leave.
struct LeaveRequest {
  bool operator==(const LeaveRequest&) const = default;
};

using MemberMessage = std::variant<JoinRequest, EpochMet, LeaveRequest>;

// The place of a member in the next epoch: its rank, the sizes of the job, and where the ranks meet.
struct EpochPlace {
  int64_t epoch = 0;
  Topology topology;           // without the host's name, which the member knows
  std::string master_address;  // where the epoch's ranks meet; empty: in the shared memory of their host
  int master_port = 0;         // 0 without an address

  bool operator==(const EpochPlace& other) const;
};

// The set of members will change. All members leave the epoch at the end of the same step, and join again.
struct ChangeNotice {
  bool operator==(const ChangeNotice&) const = default;
};

// The member has no place any more, and must end.
struct EndNotice {
  std::string reason;  // in one line

  bool operator==(const EndNotice&) const = default;
};

using LauncherMessage = std::variant<EpochPlace, ChangeNotice, EndNotice>;

std::string Encode(const MemberMessage& message);
std::string Encode(const LauncherMessage& message);

// Errors: INVALID_ARGUMENT, with the message and the reason.
absl::StatusOr<MemberMessage> DecodeMemberMessage(absl::string_view text);
absl::StatusOr<LauncherMessage> DecodeLauncherMessage(absl::string_view text);

// Sends an encoded message as one packet, without waiting.
// Errors: UNAVAILABLE if the other side is gone or does not read its messages.
absl::Status SendMembershipMessage(int fd, absl::string_view text);

// Returns the next packet, or an empty text if no packet has arrived.
// Errors: UNAVAILABLE if the other side is gone; INVALID_ARGUMENT for a packet that is too long.
absl::StatusOr<std::string> ReceiveMembershipMessage(int fd);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ELASTIC_MEMBERSHIP_MESSAGE_H_
