// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_completion.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/rank_device.h"

namespace ronda {
namespace {

// How long a waiting thread polls before it sleeps. Often the device is almost done, and a wake-up takes longer than
// this.
constexpr absl::Duration kSpin = absl::Microseconds(20);

}  // namespace

void DeviceCompletion::Launch(std::unique_ptr<DeviceEvent> event) {
  event_ = std::move(event);
  launch_.store(Launching::kDone, std::memory_order_release);
}

void DeviceCompletion::Withdraw() {
  launch_.store(Launching::kWithdrawn, std::memory_order_release);
  Settle(absl::OkStatus());
}

bool DeviceCompletion::done() {
  if (settled_.load(std::memory_order_acquire)) return true;
  if (launching() != Launching::kDone) return false;
  const absl::StatusOr<bool> passed = event_->done();
  if (passed.ok() && !*passed) return false;
  SettleAs([&] {
    if (!passed.ok()) return passed.status();
    return options_.failure == nullptr ? absl::OkStatus() : (*options_.failure)();
  });
  return true;
}

bool DeviceCompletion::WaitUntil(absl::Duration deadline) {
  const absl::Duration spins_until = std::min(deadline, MonotonicTime() + kSpin);
  while (!done() && MonotonicTime() < spins_until) {
  }
  if (is_settled()) return true;
  const Waiter waiter(options_.waiters.get());
  MutexLock lock(&mu_);
  while (!settled_.load(std::memory_order_acquire)) {
    const absl::Duration left = deadline - MonotonicTime();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

absl::Status DeviceCompletion::OrderBefore(WaitingStream& stream) {
  if (is_settled() && !status_.ok()) return status_;
  // The stream is checked before the status, so that a mistake of the program is reported however fast the device is.
  RONDA_ASSIGN_OR_RETURN(const uint64_t id, stream.IdOn(*options_.device));
  if (is_settled()) return status_;
  {
    MutexLock lock(&mu_);
    if (std::find(waiting_streams_.begin(), waiting_streams_.end(), id) != waiting_streams_.end()) {
      return absl::OkStatus();
    }
  }
  RONDA_RETURN_IF_ERROR(event_->OrderBefore(stream.handle()));
  MutexLock lock(&mu_);
  // The bucket may have failed meanwhile, before the thread that settled it could know of this stream. So the caller
  // gets the failure.
  if (settled_.load(std::memory_order_relaxed)) return status_;
  waiting_streams_.push_back(id);
  return absl::OkStatus();
}

bool DeviceCompletion::HoldsAStream() {
  {
    MutexLock lock(&mu_);
    if (status_.ok() || waiting_streams_.empty()) return false;
  }
  // The device is queried, because the watch may not have noticed yet that the bucket is done. After an error of the
  // device, the work counts as ended, because the device does nothing more.
  const absl::StatusOr<bool> passed = event_->done();
  return passed.ok() && !*passed;
}

bool DeviceCompletion::Then(std::list<CallbackThread::Callback>* callbacks) {
  if (done()) return false;
  MutexLock lock(&mu_);
  if (settled_.load(std::memory_order_acquire)) return false;
  callbacks_.splice(callbacks_.end(), *callbacks);
  return true;
}

void DeviceCompletion::Settle(absl::Status status) {
  SettleAs([&] { return std::move(status); });
}

void DeviceCompletion::SettleAs(absl::FunctionRef<absl::Status()> outcome) {
  std::list<CallbackThread::Callback> callbacks;
  {
    MutexLock lock(&mu_);
    if (settled_.load(std::memory_order_relaxed)) return;
    status_ = outcome();
    callbacks.swap(callbacks_);
    settled_.store(true, std::memory_order_release);
  }
  changed_.NotifyAll();
  for (CallbackThread::Callback& callback : callbacks) {
    callback.status = status_.ok() ? absl::OkStatus() : AboutTensor(*callback.tensor, status_);
  }
  if (!callbacks.empty() && options_.progress != nullptr) options_.progress->RecordLearned();
  options_.callbacks->Post(std::move(callbacks));
}

}  // namespace ronda
