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

// Sends and receives messages between ranks, which are numbered from 0. The messages from one rank to another stay in
// order. Only Rest() blocks.
//
// Thread-compatible, except DescriptorOf(), which any thread may call. A transfer owns its buffer until Test() reports
// that it is complete. If the job fails before that, it owns the buffer until this object is no longer used.
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;

  // A transfer in progress. Trivially copyable, so that a collective can store many requests without allocating.
  struct Request {
    uint64_t words[2];
  };

  // Send() and Receive() start a transfer of `bytes` bytes, which may be 0. The receiver must pass the exact size of
  // the message. Errors: INTERNAL with the library's error text.
  virtual absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) = 0;
  virtual absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) = 0;

  // Moves as much data as possible without blocking. Returns whether all of `requests` are complete. They must then not
  // be used again.
  virtual absl::StatusOr<bool> Test(absl::Span<Request> requests) = 0;

  // The two halves of Test(), for a caller with many requests that wants to avoid a system call for each: Progress()
  // moves data, and Look() only checks the requests. If every library call moves data anyway, Progress() does nothing
  // and Look() is Test().
  virtual void Progress() {}
  virtual absl::StatusOr<bool> Look(absl::Span<Request> requests) { return Test(requests); }

  // Sleeps until data can be moved, but at most for `longest`. Always sleeps for `longest` if the library cannot tell
  // when data can be moved.
  virtual void Rest(absl::Duration longest) { absl::SleepFor(longest); }
  // Returns whether Rest() returns as soon as data can be moved.
  virtual bool rest_ends_with_data() const { return false; }
  // If rest_ends_with_data(), returns a descriptor that becomes ready when data can be moved to or from `peer`. It
  // never changes. Any thread may call this function and poll the descriptor, even while another thread uses this
  // object.
  virtual int DescriptorOf(RankId /*peer*/) const { return -1; }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_POINT_TO_POINT_POINT_TO_POINT_H_
