// Sleeping on a word of shared memory, and waking who sleeps there.
#ifndef RONDA_RUNTIME_SHM_FUTEX_H_
#define RONDA_RUNTIME_SHM_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace ronda {

// Sleeps until FutexWake on the same word, `timeout` has passed, or for no reason. Returns at once if `*word` is not
// `expected`: the kernel compares it in one step with going to sleep. Works between processes.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout);

// Wakes all who sleep on `word`.
void FutexWake(const std::atomic<uint32_t>& word);

// Tells the processor that this is a spinning loop.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_FUTEX_H_
