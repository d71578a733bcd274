// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace ronda {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

// FUTEX_WAIT_PRIVATE and FUTEX_WAKE_PRIVATE would be faster, but work only within one process.
constexpr int kWaitShared = FUTEX_WAIT;
constexpr int kWakeShared = FUTEX_WAKE;

}  // namespace

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout) {
  if (timeout <= absl::ZeroDuration()) return;
  const timespec relative = absl::ToTimespec(std::min(timeout, absl::Hours(1)));
  syscall(SYS_futex, &word, kWaitShared, expected, &relative, nullptr, 0);
}

void FutexWake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, kWakeShared, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ronda
