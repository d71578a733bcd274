// SPDX-License-Identifier: Apache-2.0

// Futexes, with which threads sleep on a 32-bit word of shared memory until another thread wakes them, and a doorbell
// built on them.
#ifndef RONDA_RUNTIME_SHM_DOORBELL_H_
#define RONDA_RUNTIME_SHM_DOORBELL_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace ronda {

// Sleeps until another thread, possibly of a different process, calls FutexWake() for the same word, or until `timeout`
// has passed. Can wake spuriously. Returns at once if `word` is not `expected`. The comparison and the start of the
// sleep are one atomic step.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);

// Wakes all threads that sleep on `word`.
void FutexWake(const std::atomic<uint32_t>& word);

// Hints to the processor that this thread is in a spin loop.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A doorbell in shared memory: a few threads sleep until any thread rings it. All-zero bytes are a valid doorbell.
//
//   const uint32_t heard = doorbell.Rings();
//   if (!condition) doorbell.Sleep(heard, timeout);   // the thread that makes the condition true rings afterwards
//
// A thread can also poll the condition. While it polls, rings are counted but wake no thread, so the other threads stay
// asleep:
//
//   doorbell.StartPolling();
//   uint32_t seen;
//   do seen = doorbell.RingsWhilePolled(); while (!condition && may_wait());
//   if (doorbell.StopPolling(seen)) doorbell.Ring();  // the poller may have missed a ring, so the sleepers must check
//
// A poller that has found its condition true often polls again soon. The ringing thread can then wait briefly until the
// poller is back, which costs both threads less than waking a sleeper.
//
//   if (doorbell.IsPollerExpected()) { ...; }   // for a moment
//   doorbell.RingUnlessPolled();                // unless the condition has been seen
//
// Memory ordering: a sleeper first increments `asleep_`; then the kernel compares `rings_` while it puts the thread to
// sleep. The ringing thread first increments `rings_`, then reads `asleep_`. All four steps are sequentially
// consistent, and the kernel compares under a lock that FUTEX_WAKE also takes. So if the ringing thread sees no
// sleeper, it has incremented `rings_` before the kernel compares, and the other thread does not fall asleep. A woken
// thread that reads the new count also sees all data written before the ring.
//
// While a thread polls, the ringing thread increments `rings_while_polled_`, then checks whether the poller is still
// polling. The poller first declares that it has stopped (StopPolling), then reads `rings_while_polled_`. These steps
// are also sequentially consistent. So either the ringing thread sees that the poller has stopped, and rings for the
// sleepers, or the poller sees the ring. RingUnlessPolled() relies on the condition itself instead of this count.
// Before RingUnlessPolled(), the ringing thread makes the condition true with a sequentially consistent store. After
// StopPolling(), the poller reads the condition again with a sequentially consistent load.
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

  // An expected poller that has not come back is no longer expected.
  void RingUnlessPolled() {
    Poller expected = Poller::kComesBack;
    poller_.compare_exchange_strong(expected, Poller::kNone, std::memory_order_seq_cst);
    if (expected != Poller::kPolls) RingForSleepers();
  }

  // Sleeps until the doorbell has rung since `heard`, or until `timeout` has passed. Can wake spuriously.
  void Sleep(uint32_t heard, absl::Duration timeout) {
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    FutexWait(rings_, heard, timeout);
    asleep_.fetch_sub(1, std::memory_order_relaxed);
  }

  // One thread at a time may poll.
  enum class Poller : uint32_t { kNone = 0, kPolls = 1, kComesBack = 2 };
  void StartPolling() { poller_.store(Poller::kPolls, std::memory_order_seq_cst); }
  uint32_t RingsWhilePolled() const { return rings_while_polled_.load(std::memory_order_seq_cst); }
  // Returns whether the doorbell has rung since `seen`, the value of RingsWhilePolled() before the poller last checked
  // its condition. `next` says whether this thread will poll again soon (kComesBack) or not (kNone).
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
