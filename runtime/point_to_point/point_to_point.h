// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_POINT_TO_POINT_POINT_TO_POINT_H_
#define RONDA_RUNTIME_POINT_TO_POINT_POINT_TO_POINT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"

namespace ronda {

// Sends and receives messages between ranks, which are numbered from 0. The messages from one sender to one receiver
// keep their order. Only Rest blocks.
//
// Thread-compatible, except DescriptorOf. A buffer belongs to the transfer until Test has reported that it is complete.
// If the job fails earlier, the buffer belongs to the transfer until no more calls to this object are made.
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;

  // A transfer under way. The struct is trivial, so that a collective can keep many requests without an allocation.
  struct Request {
    uint64_t words[2];
  };

  // These functions begin a transfer of `bytes`, which may be 0. The receiver must pass the exact size of the message.
  // Errors: INTERNAL with the library's text.
  virtual absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) = 0;
  virtual absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) = 0;

  // Moves as much data as is possible without waiting. Returns whether all of `requests` are complete. Complete
  // requests must not be used again.
  virtual absl::StatusOr<bool> Test(absl::Span<Request> requests) = 0;

  // These functions are the two parts of Test, for a caller that has many requests and wants to avoid a system call for
  // each request. Progress moves data, and Look only checks the requests. If every call to the library moves data,
  // Progress does nothing and Look is Test.
  virtual void Progress() {}
  virtual absl::StatusOr<bool> Look(absl::Span<Request> requests) { return Test(requests); }

  // Sleeps until data can be moved, but at most for `longest`. If the library cannot tell when data can be moved,
  // sleeps for `longest`.
  virtual void Rest(absl::Duration longest) { absl::SleepFor(longest); }
  // Whether Rest ends when data can be moved.
  virtual bool rest_ends_with_data() const { return false; }
  // If rest_ends_with_data(), returns the descriptor that becomes ready when data can be moved to or from `peer`. The
  // descriptor never changes. Any thread may call this function and poll the descriptor, even while another thread uses
  // this object.
  virtual int DescriptorOf(RankId /*peer*/) const { return -1; }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_POINT_TO_POINT_POINT_TO_POINT_H_
