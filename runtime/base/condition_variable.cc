// SPDX-License-Identifier: Apache-2.0

// In the library of GCC 12, std::condition_variable::wait has a new symbol version. With the definition below, Ronda
// calls its own function instead of the library's. So Ronda also runs on systems with the standard library of GCC 11
// (manylinux_2_34). The definition is weak because libronda.so contains that library, whose own definition then has
// precedence.
#include <pthread.h>

#include <condition_variable>

// NOLINTNEXTLINE(cert-dcl58-cpp): the definition of a declared function, in place of the library's
[[gnu::weak]] void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}
