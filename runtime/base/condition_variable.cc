// SPDX-License-Identifier: Apache-2.0

// GCC 12's standard library gives std::condition_variable::wait a new symbol version. Ronda calls the definition below
// instead, and so also runs on systems with GCC 11's standard library (manylinux_2_34). The definition is weak because
// libronda.so contains a copy of the standard library; there, the definition of the library takes precedence.
#include <pthread.h>

#include <condition_variable>

// NOLINTNEXTLINE(cert-dcl58-cpp): the definition of a declared function, in place of the library's
[[gnu::weak]] void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}
