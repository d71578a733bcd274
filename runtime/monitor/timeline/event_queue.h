// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_EVENT_QUEUE_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_EVENT_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

enum class TimelineKind : uint8_t {
  kSubmitted,      // a tensor: the trainer submitted it
  kReported,       // a tensor: this rank reports it to the coordinator
  kReady,          // a tensor, on the coordinator: rank `number` has reported it
  kAgreed,         // a tensor: the coordinator told the ranks to execute it
  kFailed,         // a tensor: it failed
  kBucketStarted,  // a collective of `number` tensors starts; one at a time
  kBucketMember,   // a tensor of this collective
  kBucketEnded,    // `number` is a BucketOutcome
  kWaiting,        // the collective has waited for longer than its warning timeout
  kCycle,          // the engine starts executing a response list, or a round of the locked schedule
  kDeviceBucket,   // work of device `number` for a collective, which took `duration`
  kDevicePhase,    // a named part of this work
};

enum class BucketOutcome : int32_t {
  kDone,
  kLaunched,  // the device is executing it
  kVetoed,    // no rank executed it, and its tensors are still in flight
  kFailed,
};

// An event of a tensor or collective on a rank, for the timeline writer. Has a fixed size, and contains no pointers.
struct TimelineEvent {
  static constexpr size_t kNameBytes = 80;

  TimelineKind kind = TimelineKind::kSubmitted;
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  uint8_t name_bytes = 0;
  int32_t number = 0;
  int64_t time = 0;      // nanoseconds on the flight recorders' clock
  int64_t duration = 0;  // nanoseconds
  uint64_t bytes = 0;
  uint64_t tensor = 0;    // identifies the tensor, even if its name was truncated
  char name[kNameBytes];  // of the tensor or bucket; truncated if too long

  void set_name(absl::string_view text) {
    text = ShortName(text, kNameBytes);
    name_bytes = static_cast<uint8_t>(text.size());
    if (!text.empty()) std::memcpy(name, text.data(), text.size());
  }
  absl::string_view name_text() const { return {name, name_bytes}; }

  void set_time(FlightTime at) { time = absl::ToInt64Nanoseconds(at); }
};

// Passes events to the thread that writes them to a file, through a ring of fixed size. Pushing an event copies it to
// the ring, without allocating memory or waiting for another thread. If the ring is full, the event is dropped and
// counted. The reader sleeps until an event arrives, then waits a short time for more. So it is woken once per batch of
// events, and once more if the ring becomes half full within this time.
//
// Thread-safe. Any number of threads may push events, and one thread may read them.
//
// Memory ordering: each slot has a sequence, which is `ticket` while the slot is free for the push with this ticket,
// and ticket + 1 once it contains the event. A pushing thread first checks with an acquire load that its slot is free,
// which means that the reader has finished reading the earlier event. It then draws the ticket with a compare-and-swap,
// copies the event, and stores ticket + 1 with release. The reader loads the sequence with acquire.
//
// Why no wake-up is lost: the reader announces that it will sleep, then checks whether a ticket has been drawn. A
// pushing thread draws a ticket, then checks whether the reader sleeps. These writes and checks are sequentially
// consistent, so at least one of the two threads sees the other. A pushing thread takes the lock before it wakes the
// reader, which holds this lock from its check until it is asleep.
class EventQueue {
 public:
  // REQUIRES: `capacity` is a power of two.
  explicit EventQueue(size_t capacity);

  void Push(const TimelineEvent& event);

  // Only the reader may call the following functions.

  // Blocks until an event arrives, or the reader is interrupted.
  void AwaitFirst();
  // Blocks until the ring is half full, `linger` has passed, or the reader is interrupted.
  void AwaitMore(absl::Duration linger);
  // Passes the events in the ring to `take`, in order, and frees their slots.
  void Drain(absl::FunctionRef<void(const TimelineEvent&)> take);
  // Returns the number of events dropped since the last call.
  uint64_t TakeDropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

  // Wakes the reader, and keeps it from sleeping until Resume() is called. Any thread may call Interrupt().
  void Interrupt();
  void Resume();

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> sequence;
    TimelineEvent event;
  };
  static_assert(sizeof(Slot) == 128);
  enum class Reader : uint8_t { kAwake, kAwaitsFirst, kAwaitsMore };

  uint64_t Waiting() const { return tail_.load() - head_.load(std::memory_order_relaxed); }
  bool IsWorthWaking() const;
  void Wake();

  const size_t capacity_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(64) std::atomic<uint64_t> tail_{0};  // the next ticket
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> head_{0};  // the next ticket to read
  std::atomic<Reader> reader_{Reader::kAwake};
  Mutex mu_;
  CondVar changed_;
  bool interrupted_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_EVENT_QUEUE_H_
