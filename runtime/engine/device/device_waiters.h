// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WAITERS_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WAITERS_H_

#include <atomic>

#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace ronda {

// Decides how often the device is polled. A thread that waits for the device calls Begin before the wait and End after
// it.
//
// Thread-safe.
class DeviceWaiters {
 public:
  void Begin() {
    if (waiting_.fetch_add(1) == 0) Ring();
  }
  void End() { waiting_.fetch_sub(1); }
  bool is_wanted() const { return waiting_.load() > 0; }

  // Ends the Sleep in progress. A Sleep that is just about to begin is missed, which does no harm, because each Sleep
  // is short.
  void Ring() {
    MutexLock lock(&mu_);
    rung_.NotifyAll();
  }
  // Sleeps for `duration`, or until Ring or the first Begin.
  void Sleep(absl::Duration duration) {
    MutexLock lock(&mu_);
    rung_.WaitFor(&mu_, duration);
  }

 private:
  std::atomic<int> waiting_{0};
  Mutex mu_;
  CondVar rung_;
};

// While a Waiter exists, the device is polled often.
class Waiter {
 public:
  // If `waiters` is nullptr, does nothing.
  explicit Waiter(DeviceWaiters* waiters) : waiters_(waiters) {
    if (waiters_ != nullptr) waiters_->Begin();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() {
    if (waiters_ != nullptr) waiters_->End();
  }

 private:
  DeviceWaiters* const waiters_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WAITERS_H_
