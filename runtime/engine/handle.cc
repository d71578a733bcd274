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
  {
    MutexLock lock(&mu_);
    while (AnnounceWaiterLocked()) completed_.Wait(&mu_);
  }
  NoteLearned();
}

bool Handle::AnnounceWaiterLocked() const {
  State found = State::kPending;
  state_.compare_exchange_strong(found, State::kAwaited, std::memory_order_acq_rel, std::memory_order_acquire);
  return found != State::kDone;
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
    if (AnnounceWaiterLocked()) {
      callbacks_.splice(callbacks_.end(), callbacks);
      return absl::OkStatus();
    }
  }
  NoteLearned();
  callbacks.front().status = status_;
  callback_thread_->Post(std::move(callbacks));
  return absl::OkStatus();
}

void Handle::Complete(absl::Status status) {
  RONDA_CHECK(state_.load(std::memory_order_relaxed) != State::kDone);
  status_ = std::move(status);
  if (state_.exchange(State::kDone, std::memory_order_acq_rel) == State::kAwaited) TellWaiters();
}

void Handle::TellWaiters() {
  std::list<CallbackThread::Callback> callbacks;
  {
    MutexLock lock(&mu_);
    callbacks.swap(callbacks_);
  }
  for (CallbackThread::Callback& callback : callbacks) callback.status = status_;
  if (!callbacks.empty() && driver_ != nullptr) driver_->NoteLearned();
  // Outside of the lock, which who wakes up takes.
  completed_.NotifyAll();
  callback_thread_->Post(std::move(callbacks));
}

void Handle::Complete(OperationResult result) {
  result_ = std::move(result);
  Complete(absl::OkStatus());
}

}  // namespace ronda
