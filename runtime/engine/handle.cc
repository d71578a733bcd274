#include "runtime/engine/handle.h"

#include <utility>

#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {

bool Handle::done() const {
  MutexLock lock(&mu_);
  return done_;
}

absl::Status Handle::Wait() const {
  MutexLock lock(&mu_);
  while (!done_) completed_.Wait(&mu_);
  return status_;
}

const OperationResult& Handle::result() const {
  RONDA_CHECK(done());
  return result_;
}

absl::Status Handle::OnCompletion(std::function<void(const absl::Status&)> callback) {
  RONDA_RETURN_IF_ERROR(callback_thread_->Start());
  std::list<CallbackThread::Callback> callbacks;
  callbacks.push_back({.function = std::move(callback)});
  {
    MutexLock lock(&mu_);
    if (!done_) {
      callbacks_.splice(callbacks_.end(), callbacks);
      return absl::OkStatus();
    }
    callbacks.front().status = status_;
    callbacks.front().tensor = tensor_;
  }
  callback_thread_->Post(std::move(callbacks));
  return absl::OkStatus();
}

void Handle::Complete(std::string tensor, absl::Status status) {
  std::list<CallbackThread::Callback> callbacks;
  {
    MutexLock lock(&mu_);
    RONDA_CHECK(!done_);
    for (CallbackThread::Callback& callback : callbacks_) {
      callback.status = status;
      callback.tensor = tensor;
    }
    callbacks.swap(callbacks_);
    status_ = std::move(status);
    tensor_ = std::move(tensor);
    done_ = true;
    completed_.NotifyAll();
  }
  callback_thread_->Post(std::move(callbacks));
}

void Handle::Complete(std::string tensor, OperationResult result) {
  result_ = std::move(result);
  Complete(std::move(tensor), absl::OkStatus());
}

}  // namespace ronda
