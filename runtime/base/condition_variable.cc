// GCC 12 gave this function a new version in its library, for its name alone. Defined here, it is taken from Ronda's
// own files, which so run on systems with the library of GCC 11 (manylinux_2_34). Weak, as libronda.so has a library of
// its own, whose definition counts.
#include <pthread.h>

#include <condition_variable>

// NOLINTNEXTLINE(cert-dcl58-cpp): the definition of a declared function, in place of the library's
[[gnu::weak]] void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}
