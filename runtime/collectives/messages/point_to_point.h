#ifndef RONDA_RUNTIME_COLLECTIVES_MESSAGES_POINT_TO_POINT_H_
#define RONDA_RUNTIME_COLLECTIVES_MESSAGES_POINT_TO_POINT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"

namespace ronda {

// Messages between ranks, which are numbered from 0, in order for each pair of sender and receiver; nothing blocks.
//
// Thread-compatible. A buffer is the transfer's until Test has said that it is complete; if that never comes, because
// the job has failed, until no more calls are made.
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;

  // A transfer under way. Trivial, so that a collective can keep many without allocation.
  struct Request {
    uint64_t words[2];
  };

  // `bytes` may be 0. The receiver names the exact size. Errors: INTERNAL with the library's text.
  virtual absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) = 0;
  virtual absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) = 0;

  // Moves what can be moved; whether all of `requests` are complete, in which case they are over.
  virtual absl::StatusOr<bool> Test(absl::Span<Request> requests) = 0;

  // Sleeps until something can be moved, but not for longer than `longest`; for as long as that where nothing tells.
  virtual void Rest(absl::Duration longest) { absl::SleepFor(longest); }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MESSAGES_POINT_TO_POINT_H_
