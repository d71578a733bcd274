#include "client/default_runtime.h"

#include <utility>

#include "client/status_code.h"

namespace ronda {

Outcome NotInitialized() { return {RONDA_ERROR_NOT_INITIALIZED, "Ronda is not initialized: call ronda_init() first"}; }

const char* DefaultRuntime::DescribeConflict(State state) {
  switch (state) {
    case State::kStarting:
      return "another thread is in ronda_init(): call it once per process";
    case State::kStopping:
      return "another thread is in ronda_shutdown(): wait for it before ronda_init()";
    default:
      return "Ronda is already initialized: call ronda_init() once per process, or ronda_shutdown() before the next "
             "one";
  }
}

Outcome DefaultRuntime::Start(const Factory& factory) {
  {
    MutexLock lock(&mu_);
    if (state_ != State::kNone) return {RONDA_ERROR_ALREADY_INITIALIZED, DescribeConflict(state_)};
    state_ = State::kStarting;
  }
  absl::StatusOr<std::unique_ptr<Session>> session = absl::UnknownError("not started");
  try {
    session = factory();
  } catch (...) {
    MutexLock lock(&mu_);
    state_ = State::kNone;
    throw;
  }
  MutexLock lock(&mu_);
  state_ = session.ok() ? State::kRunning : State::kNone;
  if (!session.ok()) {
    return {ToRondaStatus(session.status().code(), Answer::kStartup), std::string(session.status().message())};
  }
  session_ = *std::move(session);
  return {};
}

Outcome DefaultRuntime::Stop() {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&mu_);
    if (state_ != State::kRunning) return NotInitialized();
    if (session_->runtime().InCallback()) {
      return {RONDA_ERROR_INVALID_ARGUMENT,
              "ronda_shutdown() in a callback, which it would have to wait for: call it elsewhere"};
    }
    state_ = State::kStopping;
    session = std::move(session_);
  }
  const absl::Status status = session->runtime().Shutdown();
  // Without other users the transport is gone before the next Start, which may meet the same ranks again.
  session.reset();
  MutexLock lock(&mu_);
  state_ = State::kNone;
  return {ToRondaStatus(status.code(), Answer::kCompletion), std::string(status.message())};
}

std::shared_ptr<Session> DefaultRuntime::Get() const {
  MutexLock lock(&mu_);
  return session_;
}

}  // namespace ronda
