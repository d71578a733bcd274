// SPDX-License-Identifier: Apache-2.0

// Threads can sleep on a 32-bit word of shared memory until another thread wakes them. This file has the functions for
// this kind of sleep (futexes), and a doorbell that uses them.
#ifndef RONDA_RUNTIME_SHM_DOORBELL_H_
#define RONDA_RUNTIME_SHM_DOORBELL_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace ronda {

// Sleeps until another thread calls FutexWake for the same word, or until `timeout` has passed. FutexWait may also
// return earlier. Returns at once if `*word` is not `expected`. The kernel compares `*word` with `expected` and puts
// the thread to sleep in one step. The two threads may belong to different processes.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);

// Wakes all threads that sleep on `word`.
void FutexWake(const std::atomic<uint32_t>& word);

// Tells the processor that this thread is spinning in a loop.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A doorbell in shared memory. A few threads sleep until the doorbell rings. Any thread can ring it. A doorbell whose
// bytes are all zero is valid.
//
//   const uint32_t heard = doorbell.Rings();
//   if (!condition) doorbell.Sleep(heard, timeout);   // the thread that makes the condition true rings afterwards
//
// A thread that polls the condition needs no ring to wake it, and can act while other threads go on sleeping. While a
// thread polls, rings are only counted, and wake nobody:
//
//   doorbell.StartPolling();
//   uint32_t seen;
//   do seen = doorbell.RingsWhilePolled(); while (!condition && may_wait());
//   if (doorbell.StopPolling(seen)) doorbell.Ring();   // the sleepers look, as the poller may have missed something
//
// A thread that has found what it polled for often polls again soon. The ringing thread can poll for a moment until the
// poller is back. For both threads a short wait costs less than waking a sleeper.
//
//   if (doorbell.IsPollerExpected()) { ...; }   // for a moment
//   doorbell.RingUnlessPolled();                // unless the condition has been seen
//
// Memory ordering: a thread that will sleep announces its sleep (`asleep_`). After this, the kernel compares `rings_`
// as it puts the thread to sleep. The ringing thread counts its ring, and then checks whether a thread sleeps. All four
// steps are sequentially consistent, and the kernel compares under a lock that FUTEX_WAKE also takes. So if the ringing
// thread finds no sleeping thread, it has counted its ring before the kernel compares. The comparison in the kernel
// then fails, and the other thread does not go to sleep. A woken thread that reads the new count also sees all data
// that was written before the ring.
//
// If a thread polls, the ringing thread counts a ring, and then checks whether the other thread still polls. The
// polling thread first declares that it has stopped (StopPolling), and then reads the count of rings. These steps of
// the poller and of the ringing thread are also sequentially consistent. So either the ringing thread sees that the
// poller has stopped, and rings for the sleepers, or the poller sees the ring. A condition can be used instead of the
// count of rings. The ringing thread makes the condition true with a sequentially consistent store before
// RingUnlessPolled. The poller reads the condition again with a sequentially consistent load after StopPolling. With
// such a condition, the threads need no count of rings.
class Doorbell {
 public:
  uint32_t Rings() const { return rings_.load(std::memory_order_seq_cst); }

  void Ring() {
    if (poller_.load(std::memory_order_seq_cst) == Poller::kPolls) {
      rings_while_polled_.fetch_add(1, std::memory_order_seq_cst);
      if (poller_.load(std::memory_order_seq_cst) == Poller::kPolls) return;
    }
    RingForSleepers();
  }

  // If a polling thread was expected but has not come, it is not expected any more.
  void RingUnlessPolled() {
    Poller expected = Poller::kComesBack;
    poller_.compare_exchange_strong(expected, Poller::kNone, std::memory_order_seq_cst);
    if (expected != Poller::kPolls) RingForSleepers();
  }

  // Sleeps until the doorbell has rung since `heard`, or until `timeout` has passed. Sleep may also return earlier.
  void Sleep(uint32_t heard, absl::Duration timeout) {
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    FutexWait(rings_, heard, timeout);
    asleep_.fetch_sub(1, std::memory_order_relaxed);
  }

  // One thread at a time may poll.
  enum class Poller : uint32_t { kNone = 0, kPolls = 1, kComesBack = 2 };
  void StartPolling() { poller_.store(Poller::kPolls, std::memory_order_seq_cst); }
  uint32_t RingsWhilePolled() const { return rings_while_polled_.load(std::memory_order_seq_cst); }
  // Returns whether the doorbell has rung since `seen`, the value of RingsWhilePolled() before the last look. `next`
  // says whether this thread will poll again soon (kComesBack) or not (kNone).
  [[nodiscard]] bool StopPolling(uint32_t seen, Poller next) {
    poller_.store(next, std::memory_order_seq_cst);
    return RingsWhilePolled() != seen;
  }
  bool IsPollerExpected() const { return poller_.load(std::memory_order_seq_cst) == Poller::kComesBack; }

 private:
  void RingForSleepers() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst) != 0) FutexWake(rings_);
  }

  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> asleep_{0};  // number of threads asleep
  std::atomic<Poller> poller_{Poller::kNone};
  std::atomic<uint32_t> rings_while_polled_{0};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_DOORBELL_H_
