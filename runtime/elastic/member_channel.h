// SPDX-License-Identifier: Apache-2.0

// The member's end of the socket between a member of an elastic job and its launcher.
#ifndef RONDA_RUNTIME_ELASTIC_MEMBER_CHANNEL_H_
#define RONDA_RUNTIME_ELASTIC_MEMBER_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/environment.h"
#include "runtime/base/unique_fd.h"
#include "runtime/elastic/membership_message.h"

namespace ronda {

// Sends a member's requests to its launcher, and receives the answers. DATA_LOSS means that the member has no place (no
// rank) in the job: the launcher has said so, is gone, or takes too long to answer. In the first two cases, the member
// can never get a place again. No other error of this class, or of the start of a job, has the code DATA_LOSS.
//
// Thread-compatible.
class MemberChannel {
 public:
  // Returns the channel for the descriptor in RONDA_MEMBERSHIP_FD, or null if the variable is not set. Programs that
  // this process executes do not inherit the descriptor.
  // Errors: INVALID_ARGUMENT if the descriptor is not a launcher's socket.
  static absl::StatusOr<std::unique_ptr<MemberChannel>> Open(const EnvironmentReader& environment);

  explicit MemberChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  // Asks for a place in the epoch after `join.last_epoch`. Waits at most `timeout` for the launcher's answer.
  // Errors: DATA_LOSS; INVALID_ARGUMENT for a malformed message.
  absl::StatusOr<EpochPlace> Join(const JoinRequest& join, absl::Duration timeout);

  // Notifies the launcher that all ranks of the epoch have connected to each other.
  // Errors: DATA_LOSS.
  absl::Status TellMet(int64_t epoch);

  // Notifies the launcher that this member wants no further place. Does nothing if Leave() has been called before, or
  // if the membership has already ended.
  // Errors: DATA_LOSS.
  absl::Status Leave();

  // What the launcher requests, in ascending order. kChange: the members will change in the next epoch. kEnd: this
  // member must exit, and Join() and TellMet() return the reason.
  enum class Request { kNone, kChange, kEnd };

  // Returns the highest request since the last Join(), without waiting.
  // Errors: DATA_LOSS if the launcher is gone; INVALID_ARGUMENT for a malformed message.
  absl::StatusOr<Request> Look();

 private:
  absl::Status Tell(const MemberMessage& message);
  // Blocks until the launcher has sent a message or is gone.
  absl::Status WaitUntil(absl::Duration deadline, absl::Duration timeout) const;

  const UniqueFd socket_;
  Request request_ = Request::kNone;
  bool is_leaving_ = false;
  absl::Status end_;  // why the membership has ended; OK: it has not
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ELASTIC_MEMBER_CHANNEL_H_
