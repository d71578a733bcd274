// SPDX-License-Identifier: Apache-2.0

// A mutex that both clang's thread-safety analysis and ThreadSanitizer understand.
#ifndef RONDA_RUNTIME_BASE_MUTEX_H_
#define RONDA_RUNTIME_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace ronda {

// A std::mutex with annotations. Ronda does not use absl::Mutex, because the system's Abseil is built without
// -fsanitize=thread: ThreadSanitizer would not see its synchronisation, and would report false races.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mu_.try_lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

// Callers must wait in a loop, because wakeups can be spurious.
class CondVar {
 public:
  void NotifyAll() { cv_.notify_all(); }

  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }

  // Returns after a notification or after `timeout`, whichever comes first.
  void WaitFor(Mutex* mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (timeout == absl::InfiniteDuration()) return Wait(mu);
    // Caps each wait at an hour, because the standard library's deadline computation overflows for very long durations.
    const absl::Duration capped = timeout < absl::Hours(1) ? timeout : absl::Hours(1);
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait_for(lock, absl::ToChronoNanoseconds(capped));
    lock.release();
  }

 private:
  std::condition_variable cv_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_MUTEX_H_
