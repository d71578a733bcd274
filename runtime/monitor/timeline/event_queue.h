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
  kSubmitted,      // a tensor: the trainer handed it over
  kReported,       // a tensor: this rank reports it to the coordinator
  kReady,          // a tensor, on the coordinator: rank `number` has reported it
  kAgreed,         // a tensor: the coordinator rank has ordered it to be carried out
  kFailed,         // a tensor that was not carried out
  kBucketStarted,  // a collective begins, of `number` tensors; one at a time
  kBucketMember,   // a tensor that is in it
  kBucketEnded,    // `number` is a BucketOutcome
  kWaiting,        // the collective has waited for longer than the warning time
  kCycle,          // the engine begins to carry out what was ordered, or a round of the locked schedule
  kDeviceBucket,   // what device `number` has done for a collective, for `duration`
  kDevicePhase,    // a part of that, of this name
};

enum class BucketOutcome : int32_t {
  kDone,
  kLaunched,  // the device carries it out now
  kVetoed,    // no rank has changed anything, and its tensors are still in flight
  kFailed,
};

// An event of a tensor or a collective on a rank, for the writer of a timeline. A TimelineEvent has a fixed size and
// contains no pointers.
struct TimelineEvent {
  static constexpr size_t kNameBytes = 80;

  TimelineKind kind = TimelineKind::kSubmitted;
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  uint8_t name_bytes = 0;
  int32_t number = 0;
  int64_t time = 0;      // nanoseconds on the clock of flight recorders
  int64_t duration = 0;  // nanoseconds
  uint64_t bytes = 0;
  uint64_t tensor = 0;    // identifies the tensor, even if other names have the same beginning
  char name[kNameBytes];  // of the tensor or bucket: only the beginning of a long one

  void set_name(absl::string_view text) {
    text = ShortName(text, kNameBytes);
    name_bytes = static_cast<uint8_t>(text.size());
    if (!text.empty()) std::memcpy(name, text.data(), text.size());
  }
  absl::string_view name_text() const { return {name, name_bytes}; }

  void set_time(FlightTime at) { time = absl::ToInt64Nanoseconds(at); }
};

// Passes events to the thread that writes them to a file, through a ring of fixed size. A thread that has an event
// copies the event to the ring. The thread allocates no memory, and waits for no other thread. If the ring is full, the
// event is dropped and counted. The reader sleeps until an event comes, and then waits a short time for more events. So
// the reader is woken once per batch of events, and once more if the ring is half full before this time is over.
//
// Thread-safe. Any number of threads may push events, and one thread may read them.
//
// Memory ordering. Each slot has a sequence. The sequence of a slot is `ticket` while the slot is free for the push
// with this ticket, and ticket + 1 when the event is in the slot. A pushing thread first checks that its slot is free,
// with an acquire load. So it knows that the reader no longer reads the earlier event. The thread then draws the ticket
// by compare-and-swap, copies the event, and stores ticket + 1 with release. The reader loads the sequence with
// acquire.
//
// Why no wake-up is lost: The reader announces that it sleeps, and then checks whether a ticket has been drawn. A
// pushing thread draws a ticket, and then looks whether the reader sleeps. The two writes and the two checks are
// sequentially consistent, so at least one of the two threads sees the other. A pushing thread takes the lock before it
// wakes the reader. The reader holds this lock from its check until it sleeps.
class EventQueue {
 public:
  // REQUIRES: `capacity` is a power of two.
  explicit EventQueue(size_t capacity);

  void Push(const TimelineEvent& event);

  // Only the reader may call the following functions.

  // Blocks until an event has come, or the reader has been interrupted.
  void AwaitFirst();
  // Blocks until the ring is half full, `linger` has passed, or the reader has been interrupted.
  void AwaitMore(absl::Duration linger);
  // Passes the events in the ring to `take`, in their order, and frees their slots.
  void Drain(absl::FunctionRef<void(const TimelineEvent&)> take);
  // The number of events that have been dropped since the last call.
  uint64_t TakeDropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

  // Makes sure that the reader does not sleep until Resume is called. Any thread may call Interrupt.
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
