// Sleeping on a word of shared memory, and waking the sleepers: futexes, and a doorbell on top of them.
#ifndef RONDA_RUNTIME_SHM_DOORBELL_H_
#define RONDA_RUNTIME_SHM_DOORBELL_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace ronda {

// Sleeps until FutexWake on the same word or until `timeout` has passed; may return early. Returns at once if `*word`
// is not `expected`: the kernel compares it in one step with going to sleep. Works between processes.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);

// Wakes all threads that sleep on `word`.
void FutexWake(const std::atomic<uint32_t>& word);

// Tells the processor that this is a spinning loop.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A doorbell in shared memory, on which a few threads sleep and which any thread rings. Zero bytes are a valid
// doorbell.
//
//   const uint32_t heard = bell.Rings();
//   if (!condition) bell.Sleep(heard, timeout);   // the thread that makes the condition true rings afterwards
//
// Memory ordering: a sleeper announces itself (`asleep_`), then the kernel compares `rings_` as it puts the thread to
// sleep. The ringer counts the ring, then looks for a sleeper. All four are sequentially consistent; the kernel
// compares under a lock that FUTEX_WAKE takes too. So if the ringer sees no sleeper, its ring comes before the
// comparison, which fails, and the thread does not sleep. A sleeper that reads the new count sees everything that the
// ringer wrote before the ring.
class Doorbell {
 public:
  uint32_t Rings() const { return rings_.load(std::memory_order_seq_cst); }

  void Ring() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst) != 0) FutexWake(rings_);
  }

  // Sleeps until the bell has rung since `heard`, or `timeout` has passed; may return early.
  void Sleep(uint32_t heard, absl::Duration timeout) {
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    FutexWait(rings_, heard, timeout);
    asleep_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> asleep_{0};  // number of threads asleep
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_DOORBELL_H_
