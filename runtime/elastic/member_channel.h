// SPDX-License-Identifier: Apache-2.0

// MemberChannel is one end of the socket between a member of an elastic job and its launcher. MemberChannel is the end
// that the member uses.
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

// Sends a member's requests to its launcher, and receives the answers. The error DATA_LOSS means that the member has no
// place (no rank) in the job. DATA_LOSS occurs if the launcher has said that the member has no place, if the launcher
// is gone, or if the answer of the launcher takes too long. If the launcher is gone or has said that the member has no
// place, the member can never get a place again. No other error of this class, or of the start of a job, has the code
// DATA_LOSS.
//
// Thread-compatible.
class MemberChannel {
 public:
  // Returns the channel for the descriptor in RONDA_MEMBERSHIP_FD, or null if this variable is not set. Programs that
  // this process executes do not inherit the descriptor.
  // Errors: INVALID_ARGUMENT if the descriptor is no socket to a launcher.
  static absl::StatusOr<std::unique_ptr<MemberChannel>> Open(const EnvironmentReader& environment);

  explicit MemberChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  // Asks for a place in the epoch after `join.last_epoch`. Waits for the launcher's answer, for `timeout` at most.
  // Errors: DATA_LOSS; INVALID_ARGUMENT for a malformed message.
  absl::StatusOr<EpochPlace> Join(const JoinRequest& join, absl::Duration timeout);

  // Notifies the launcher that all ranks of the epoch have connected to each other.
  // Errors: DATA_LOSS.
  absl::Status TellMet(int64_t epoch);

  // Notifies the launcher that this member does not want another place. Does nothing if Leave has been called before,
  // or if the member gets no further place anyway.
  // Errors: DATA_LOSS.
  absl::Status Leave();

  // What the launcher requests, in ascending order. kChange: the next epoch will have other members. kEnd: this member
  // must end, and Join() and TellMet() return the reason.
  enum class Request { kNone, kChange, kEnd };

  // Returns the greatest request since the last Join(). Look does not wait for a request.
  // Errors: DATA_LOSS if the launcher is gone; INVALID_ARGUMENT for a malformed message.
  absl::StatusOr<Request> Look();

 private:
  absl::Status Tell(const MemberMessage& message);
  // Blocks until the launcher has sent a message or is gone.
  absl::Status WaitUntil(absl::Duration deadline, absl::Duration timeout) const;

  const UniqueFd socket_;
  Request request_ = Request::kNone;
  bool is_leaving_ = false;
  absl::Status end_;  // why the membership has ended; OK: it goes on
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ELASTIC_MEMBER_CHANNEL_H_
