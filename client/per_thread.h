// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_PER_THREAD_H_
#define RONDA_CLIENT_PER_THREAD_H_

#include <pthread.h>

#include <memory>
#include <optional>

namespace ronda {

// Gives each thread its own T, created on the thread's first access.
//
// A thread_local object with a destructor is destroyed while its thread may still run program code, in destructors of
// other thread_local objects and of POSIX thread keys. In the main thread, program code may also run in atexit()
// functions and in destructors of static objects. PerThread works in all of these. The main thread's T is never
// destroyed. In other threads, a POSIX thread key destroys the T when the thread ends. A thread that asks for its T
// after that gets a new one.
template <typename T>
class PerThread {
 public:
  PerThread() = delete;

  // Throws std::bad_alloc if memory is exhausted.
  static T& Get() {
    T* const made = current_;
    return made != nullptr ? *made : Make();
  }

  // Returns this thread's T, or nullptr if there is none.
  static T* IfMade() { return current_; }

 private:
  static T& Make() {
    static const std::optional<pthread_key_t> key = NewKey();
    auto made = std::make_unique<T>();
    // If no thread key could be created, the T is not destroyed when the thread ends.
    if (key.has_value()) pthread_setspecific(*key, made.get());
    current_ = made.release();
    return *current_;
  }

  static std::optional<pthread_key_t> NewKey() {
    pthread_key_t key = 0;
    if (pthread_key_create(&key, &Destroy) != 0) return std::nullopt;
    return key;
  }

  static void Destroy(void* value) {
    current_ = nullptr;
    delete static_cast<T*>(value);
  }

  constinit static inline thread_local T* current_ = nullptr;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_PER_THREAD_H_
