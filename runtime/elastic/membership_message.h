// SPDX-License-Identifier: Apache-2.0

// The messages between a member of an elastic job and its launcher, which alone decides which processes are members.
//
// A member is a process that the launcher has started. Its member number never changes, but its rank may differ in
// every epoch. The member and the launcher each hold one end of a SOCK_SEQPACKET socket pair, and send one text message
// per packet:
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
// Each side validates every message, because the other side may have a different version of Ronda, or may be the user's
// own program.
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

// The environment variable with the descriptor of the member's end of the socket pair.
inline constexpr VariableName kMembershipVariable = "RONDA_MEMBERSHIP_FD";

// The longest message. Reasons are truncated to fit.
inline constexpr size_t kMaxMembershipMessage = 4096;

// The member has left its epoch, and wants a place in the next one.
struct JoinRequest {
  int64_t last_epoch = -1;  // the member's last epoch; -1: none yet
  int64_t step = -1;        // the last completed step of the state in its memory; -1: none
  std::string reason;       // the failure that ended the epoch for the member, on one line; empty: none

  bool operator==(const JoinRequest&) const = default;
};

// The member reports that all members of the epoch have connected to each other.
struct EpochMet {
  int64_t epoch = 0;

  bool operator==(const EpochMet&) const = default;
};

// The member wants no place after the current epoch, because it received SIGTERM, or because its program asked to
// leave.
struct LeaveRequest {
  bool operator==(const LeaveRequest&) const = default;
};

using MemberMessage = std::variant<JoinRequest, EpochMet, LeaveRequest>;

// A member's place in the next epoch: its rank, the sizes of the job, and where the ranks find each other.
struct EpochPlace {
  int64_t epoch = 0;
  Topology topology;           // without the host name, which the member knows
  std::string master_address;  // where the epoch's ranks find each other; empty: in shared memory
  int master_port = 0;         // 0 if there is no address

  bool operator==(const EpochPlace& other) const;
};

// The members will change: all of them leave the epoch at the end of the same step, and join again.
struct ChangeNotice {
  bool operator==(const ChangeNotice&) const = default;
};

// The member no longer has a place, and must exit.
struct EndNotice {
  std::string reason;  // on one line

  bool operator==(const EndNotice&) const = default;
};

using LauncherMessage = std::variant<EpochPlace, ChangeNotice, EndNotice>;

std::string Encode(const MemberMessage& message);
std::string Encode(const LauncherMessage& message);

// Errors: INVALID_ARGUMENT that quotes the message and gives the reason.
absl::StatusOr<MemberMessage> DecodeMemberMessage(absl::string_view text);
absl::StatusOr<LauncherMessage> DecodeLauncherMessage(absl::string_view text);

// Sends an encoded message as one packet, without blocking. Errors: UNAVAILABLE if the other side is gone or does not
// read its messages.
absl::Status SendMembershipMessage(int fd, absl::string_view text);

// Returns the next packet, or an empty text if no packet has arrived.
// Errors: UNAVAILABLE if the other side is gone; INVALID_ARGUMENT for a packet that is too long.
absl::StatusOr<std::string> ReceiveMembershipMessage(int fd);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ELASTIC_MEMBERSHIP_MESSAGE_H_
