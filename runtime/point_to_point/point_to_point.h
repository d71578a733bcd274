// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_POINT_TO_POINT_POINT_TO_POINT_H_
#define RONDA_RUNTIME_POINT_TO_POINT_POINT_TO_POINT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"

namespace ronda {

// Messages between ranks, which are numbered from 0. The messages of a sender to a receiver stay in order. Only Rest
// blocks.
//
// Thread-compatible, except DescriptorOf. A buffer belongs to the transfer until Test has reported that it is complete.
// If the job fails before that, the buffer belongs to the transfer until no more calls are made.
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;

  // A transfer under way. Trivial, so that a collective can keep many without allocation.
  struct Request {
    uint64_t words[2];
  };

  // `bytes` may be 0. The receiver passes the exact size of the message. Errors: INTERNAL with the library's text.
  virtual absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) = 0;
  virtual absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) = 0;

  // Moves as much data as it can. Returns whether all of `requests` are complete; if so, they are over.
  virtual absl::StatusOr<bool> Test(absl::Span<Request> requests) = 0;

  // The two parts of Test, for a caller that has many requests and does not want to ask the system for each of them:
  // Progress moves data, and Look only looks. A library whose every call moves data has no such parts.
  virtual void Progress() {}
  virtual absl::StatusOr<bool> Look(absl::Span<Request> requests) { return Test(requests); }

  // Sleeps until data can be moved, for `longest` at most. If the library cannot tell when, sleeps for `longest`.
  virtual void Rest(absl::Duration longest) { absl::SleepFor(longest); }
  // Whether the library can tell.
  virtual bool rest_ends_with_data() const { return false; }
  // If it can: the descriptor that is ready when data can be moved to or from `peer`. It stays the same, and any thread
  // may call this and poll the descriptor, also while another thread uses this object.
  virtual int DescriptorOf(RankId /*peer*/) const { return -1; }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_POINT_TO_POINT_POINT_TO_POINT_H_
