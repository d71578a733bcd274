// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/callback_thread.h"

#include <exception>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"

namespace ronda {
namespace {

absl::Status Thrown(const CallbackThread::Callback& callback, const char* what) {
  return absl::AbortedError(absl::StrCat("callback of tensor '", *callback.tensor, "' threw: ", what));
}

// Runs the callback, which is trainer code. If the callback throws, returns the exception as an error.
absl::Status Invoke(const CallbackThread::Callback& callback) {
  try {
    callback.function(callback.status);
  } catch (const std::exception& error) {
    return Thrown(callback, error.what());
  } catch (...) {
    return Thrown(callback, "something that is no std::exception");
  }
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<CallbackThread> CallbackThread::Create(Hooks hooks) {
  return std::shared_ptr<CallbackThread>(new CallbackThread(std::move(hooks)));
}

CallbackThread::~CallbackThread() {
  MutexLock lock(&mu_);
  RONDA_CHECK(!thread_.joinable());
}

absl::Status CallbackThread::Start() {
  MutexLock lock(&mu_);
  if (state_ != State::kNew) return absl::OkStatus();
  try {
    // The thread shares the ownership of this object, so the queue still exists if a callback releases the runtime and
    // all handles.
    thread_ = std::thread([self = shared_from_this()] { self->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread to run callbacks on: ", error.what()));
  }
  id_ = thread_.get_id();
  state_ = State::kStarted;
  return absl::OkStatus();
}

void CallbackThread::Post(std::list<Callback> callbacks) {
  if (callbacks.empty()) return;
  {
    MutexLock lock(&mu_);
    RONDA_CHECK(state_ != State::kNew);
    if (state_ == State::kStarted) {
      queue_.splice(queue_.end(), callbacks);
      changed_.NotifyAll();
      return;
    }
  }
  for (const Callback& callback : callbacks) {
    if (const absl::Status thrown = Invoke(callback); !thrown.ok()) Log(LogLevel::kError, -1, thrown.message());
  }
}

bool CallbackThread::idle() const {
  MutexLock lock(&mu_);
  return queue_.empty() && !running_;
}

bool CallbackThread::IsThisThread() const {
  MutexLock lock(&mu_);
  return id_ == std::this_thread::get_id();
}

void CallbackThread::Run() {
  std::list<Callback> next;  // one callback, or none
  while (PopNext(&next)) {
    const absl::Status thrown = Invoke(next.front());
    if (!thrown.ok() && hooks_.thrown) hooks_.thrown(thrown);
    next.clear();  // its run includes the destruction of the objects it holds
    if (Finish() == Left::kNone && hooks_.idle) hooks_.idle();
  }
}

bool CallbackThread::PopNext(std::list<Callback>* next) {
  MutexLock lock(&mu_);
  while (queue_.empty()) {
    if (state_ == State::kStopped) return false;
    changed_.Wait(&mu_);
  }
  next->splice(next->end(), queue_, queue_.begin());
  running_ = true;
  return true;
}

CallbackThread::Left CallbackThread::Finish() {
  MutexLock lock(&mu_);
  running_ = false;
  return queue_.empty() ? Left::kNone : Left::kSome;
}

void CallbackThread::Stop() {
  std::thread thread;
  {
    MutexLock lock(&mu_);
    state_ = State::kStopped;
    thread = std::exchange(thread_, std::thread());
    changed_.NotifyAll();
  }
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else if (thread.joinable()) {
    thread.join();
  }
  hooks_ = {};
}

}  // namespace ronda
