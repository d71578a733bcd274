// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/side_by_side.h"

#include <cstddef>
#include <exception>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace ronda {

// The state that the threads and the SideBySide object share.
class SideBySide::State {
 public:
  explicit State(std::vector<std::function<void()>> calls) : calls_(std::move(calls)), under_way_(calls_.size()) {}

  size_t size() const { return calls_.size(); }

  void Call(size_t index) {
    std::exception_ptr thrown;
    try {
      calls_[index]();
    } catch (const std::exception&) {
      thrown = std::current_exception();
    }
    calls_[index] = nullptr;
    const MutexLock lock(&mu_);
    if (thrown_ == nullptr) thrown_ = thrown;
    --under_way_;
    returned_.NotifyAll();
  }

  // Returns whether all calls have returned within `timeout`.
  bool Await(absl::Duration timeout) {
    const absl::Duration end = MonotonicTime() + timeout;
    const MutexLock lock(&mu_);
    while (under_way_ > 0) {
      const absl::Duration left = end - MonotonicTime();
      if (left <= absl::ZeroDuration()) return false;
      returned_.WaitFor(&mu_, left);
    }
    return true;
  }

  std::exception_ptr thrown() {
    const MutexLock lock(&mu_);
    return thrown_;
  }

 private:
  std::vector<std::function<void()>> calls_;  // each call is used by one thread
  Mutex mu_;
  CondVar returned_;
  size_t under_way_ ABSL_GUARDED_BY(mu_);
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mu_);  // the first
};

SideBySide::SideBySide(std::vector<std::function<void()>> calls) : state_(std::make_shared<State>(std::move(calls))) {
  threads_.reserve(state_->size());
}

bool SideBySide::Run(absl::Duration timeout) {
  for (size_t i = 0; i < state_->size(); ++i) {
    try {
      threads_.emplace_back([state = state_, i] { state->Call(i); });
    } catch (const std::exception&) {
      state_->Call(i);
    }
  }
  const bool have_returned = state_->Await(timeout);
  for (std::thread& thread : threads_) {
    if (have_returned) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  threads_.clear();
  if (have_returned && state_->thrown() != nullptr) std::rethrow_exception(state_->thrown());
  return have_returned;
}

}  // namespace ronda
