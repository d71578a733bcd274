// A member's end of the socket to the launcher of its elastic job.
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

// What a member tells its launcher, and hears from it. DATA_LOSS means that there is no place: the launcher says so, or
// is gone, which both are for good, or it takes too long. No other status of this class, or of a start of a job, has
// that code.
//
// Thread-compatible.
class MemberChannel {
 public:
  // The channel whose descriptor RONDA_MEMBERSHIP_FD names; null if the variable is not set. Programs that this process
  // executes do not inherit the descriptor.
  // Errors: INVALID_ARGUMENT if it is no socket of that kind.
  static absl::StatusOr<std::unique_ptr<MemberChannel>> Open(const EnvironmentReader& environment);

  explicit MemberChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  // Asks for a place in the epoch after `join.last_epoch`, and waits for it as long as the launcher is there, for at
  // most `timeout`.
  // Errors: DATA_LOSS; INVALID_ARGUMENT for a message that makes no sense.
  absl::StatusOr<EpochPlace> Join(const JoinRequest& join, absl::Duration timeout);

  // All ranks of the epoch have met.
  // Errors: DATA_LOSS.
  absl::Status TellMet(int64_t epoch);

  // This member wants no further place. Does nothing the second time, and where it gets none anyway.
  // Errors: DATA_LOSS.
  absl::Status Leave();

  // What the launcher has asked for since the last Join(), in ascending order: for other members in the next epoch; or
  // that this one ends, to which Join() and the others would answer with its reason.
  enum class Request { kNone, kChange, kEnd };

  // The greatest so far. Does not wait.
  // Errors: DATA_LOSS if the launcher is gone; INVALID_ARGUMENT for a message that makes no sense.
  absl::StatusOr<Request> Look();

 private:
  absl::Status Tell(const MemberMessage& message);
  // Blocks until there is something to receive, or the launcher is gone.
  absl::Status WaitUntil(absl::Duration deadline, absl::Duration timeout) const;

  const UniqueFd socket_;
  Request request_ = Request::kNone;
  bool is_leaving_ = false;
  absl::Status end_;  // of its membership; OK: it goes on
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ELASTIC_MEMBER_CHANNEL_H_
