#include "runtime/engine/handle.h"

#include <utility>

#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::Status Handle::Wait() const {
  const auto sleep = [this] { SleepUntilDone(); };
  if (driver_ != nullptr) {
    driver_->Await([this] { return done(); }, sleep);
  } else {
    sleep();
  }
  return status_;
}

void Handle::SleepUntilDone() const {
  MutexLock lock(&mu_);
  while (!done()) completed_.Wait(&mu_);
}

const OperationResult& Handle::result() const {
  RONDA_CHECK(done());
  return result_;
}

absl::Status Handle::OnCompletion(std::function<void(const absl::Status&)> callback) {
  RONDA_RETURN_IF_ERROR(callback_thread_->Start());
  std::list<CallbackThread::Callback> callbacks;
  callbacks.push_back({.function = std::move(callback), .tensor = tensor_});
  {
    MutexLock lock(&mu_);
    if (!done()) {
      callbacks_.splice(callbacks_.end(), callbacks);
      return absl::OkStatus();
    }
  }
  callbacks.front().status = status_;
  callback_thread_->Post(std::move(callbacks));
  return absl::OkStatus();
}

void Handle::Complete(absl::Status status) {
  std::list<CallbackThread::Callback> callbacks;
  {
    MutexLock lock(&mu_);
    RONDA_CHECK(!done());
    for (CallbackThread::Callback& callback : callbacks_) callback.status = status;
    callbacks.swap(callbacks_);
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }
  if (!callbacks.empty() && driver_ != nullptr) driver_->NoteLearned();
  // Outside of the lock, which who wakes up takes. Costs nothing if nobody sleeps.
  completed_.NotifyAll();
  callback_thread_->Post(std::move(callbacks));
}

void Handle::Complete(OperationResult result) {
  result_ = std::move(result);
  Complete(absl::OkStatus());
}

}  // namespace ronda
