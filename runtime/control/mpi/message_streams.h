// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MPI_MESSAGE_STREAMS_H_
#define RONDA_RUNTIME_CONTROL_MPI_MESSAGE_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/control/mpi/frame_link.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// The streams between a rank and its neighbours in the tree, over messages. A message library wakes no thread. So
// streams move, and their owners are called, only while a thread calls Poll.
//
// Writes go to the library at once; the next Poll may find that they have been sent. Owners are called without a lock
// by one thread at a time, the one that polls. So they may call streams.
//
// Thread-safe.
class MessageStreams {
 public:
  explicit MessageStreams(std::unique_ptr<PointToPoint> messages);
  ~MessageStreams();

  // A stream to `parent`; the caller opens or ends it. Call once.
  ControlStream* StreamTo(RankId parent);

  // `owner` is notified of each of `children` that has opened its stream. Call once.
  // Errors: the library's.
  absl::Status Accept(const std::vector<RankId>& children, std::shared_ptr<ControlCore> owner);

  // Moves everything that can be moved and notifies the owners. Also returns kNone if another thread already does so.
  // If there is no memory for that, the job fails (ControlCore::RunOutOfMemory). REQUIRES: Accept has been called.
  enum class Movement { kNone, kSome };
  Movement Poll();

  // How often Poll has been called, and when something was last moved or written.
  uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
  absl::Duration last_movement() const { return absl::Nanoseconds(last_movement_ns_.load(std::memory_order_relaxed)); }
  void RecordMovement();

  // Whether all streams have closed: both ends have received the other's end.
  bool AreClosed() const;

  // From now on nothing is moved, and no call is made to the library. Waits until no thread polls.
  // REQUIRES: not called by an owner.
  void Stop();
  bool IsStopped() const;

  // Tells the owners of all remaining streams that they are closed. Returns kNothing if the library has finished
  // everything that it was given; otherwise no calls may be made to it any more.
  // REQUIRES: Stop has been called.
  enum class Rest { kNothing, kTransfers };
  Rest Cut();

 private:
  struct Stream;
  // A call to an owner.
  struct Event {
    enum class Kind { kAccepted, kPiece, kReadsEnd, kWritten, kClosed } kind;
    Stream* stream;
    std::string piece = {};
  };

  void Open(Stream& stream, std::shared_ptr<ControlCore> owner);
  void Send(Stream& stream, LinkFrame frame);

  void CollectLocked(std::vector<Event>& events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectReceivedLocked(Stream& stream, std::vector<Event>& events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectSentLocked(Stream& stream, std::vector<Event>& events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RecordBreakLocked(Stream& stream, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Constant once stopped.
  const std::vector<std::unique_ptr<Stream>>& streams_after_stop() const;
  std::shared_ptr<ControlCore> acceptor();
  void Deliver(Event& event);

  const std::unique_ptr<PointToPoint> messages_;
  const absl::Status given_up_ = absl::CancelledError("this rank has given up");
  std::atomic<uint64_t> polls_{0};
  std::atomic<int64_t> last_movement_ns_;

  mutable Mutex mu_;
  CondVar polling_ended_;
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);  // grows before the first Poll only
  std::shared_ptr<ControlCore> acceptor_ ABSL_GUARDED_BY(mu_);
  bool is_polled_ ABSL_GUARDED_BY(mu_) = false;  // whether a thread polls; it may be calling an owner
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MPI_MESSAGE_STREAMS_H_
