// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/handle.h"

#include <new>
#include <utility>

#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/captured_calls.h"
#include "runtime/engine/device/device_blocks.h"
#include "runtime/engine/device/device_completion.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/submission.h"

namespace ronda {

void ResultDeleter::operator()(std::byte* data) const {
  if (blocks == nullptr) {
    delete[] data;
  } else {
    blocks->Release(data, bytes);
  }
}

absl::Status Handle::Wait() const {
  WaitUntil(absl::InfiniteDuration());
  return KnownStatus();
}

bool Handle::WaitUntil(absl::Duration deadline) const {
  if (!LaunchesBy(deadline) || (result_.completion != nullptr && !result_.completion->WaitUntil(deadline)))
    return false;
  RecordLearned();
  return true;
}

absl::Status Handle::OrderBefore(void* stream) const {
  WaitingStream waiting(stream);
  return OrderBefore(waiting);
}

absl::Status Handle::OrderBefore(WaitingStream& stream) const {
  AwaitLaunch();
  // After this call, the program counts as knowing that the operation is complete, because the next tensor that it
  // submits may depend on the result.
  RecordLearned();
  if (result_.captured != nullptr) return AboutTensor(*tensor_, result_.captured->OrderBefore(stream.handle()));
  if (result_.completion == nullptr || !status_.ok()) return status_;
  const absl::Status status = result_.completion->OrderBefore(stream);
  if (!status.ok()) return AboutTensor(*tensor_, status);
  if (DeviceBlocks* const blocks = BlocksOfResult()) blocks->AddReader(result_.data.get(), stream.handle());
  return absl::OkStatus();
}

absl::Status Handle::KnownStatus() const {
  if (result_.completion == nullptr) return status_;
  const absl::Status& on_device = result_.completion->status();
  return on_device.ok() ? status_ : AboutTensor(*tensor_, on_device);
}

bool Handle::IsPastDevice() const { return result_.completion->done(); }

void Handle::AwaitLaunch(absl::Duration deadline) const {
  const auto sleep = [=, this] { SleepUntilLaunched(deadline); };
  if (progress_ != nullptr) {
    int looks = 0;
    progress_->Await([&] { return IsLaunchedOrPast(deadline, &looks); }, sleep);
  } else {
    sleep();
  }
}

void Handle::SleepUntilLaunched(absl::Duration deadline) const {
  MutexLock lock(&mu_);
  while (AnnounceWaiterLocked()) {
    const absl::Duration left = deadline - MonotonicTime();
    if (left <= absl::ZeroDuration()) return;
    completed_.WaitFor(&mu_, left);
  }
}

bool Handle::AnnounceWaiterLocked() const {
  State found = State::kPending;
  state_.compare_exchange_strong(found, State::kAwaited, std::memory_order_acq_rel, std::memory_order_acquire);
  return found != State::kDone;
}

const OperationResult& Handle::result() const {
  RONDA_CHECK(launched());
  return result_;
}

absl::Status Handle::FreeAfter(void* stream) {
  RONDA_CHECK(launched());
  DeviceBlocks* const blocks = BlocksOfResult();
  if (blocks == nullptr) return absl::OkStatus();
  absl::Status status = blocks->RecordLastRead(result_.data.get(), stream);
  return status.ok() ? status : AboutTensor(*tensor_, status);
}

DeviceBlocks* Handle::BlocksOfResult() const {
  return result_.data == nullptr ? nullptr : result_.data.get_deleter().blocks.get();
}

absl::Status Handle::OnLaunch(std::function<void(const absl::Status&)> callback) {
  RONDA_RETURN_IF_ERROR(callback_thread_->Start());
  std::list<CallbackThread::Callback> callbacks;
  callbacks.push_back({.function = std::move(callback), .tensor = tensor_});
  {
    MutexLock lock(&mu_);
    if (AnnounceWaiterLocked()) {
      launch_callbacks_.splice(launch_callbacks_.end(), callbacks);
      return absl::OkStatus();
    }
  }
  Post(std::move(callbacks), status_);
  return absl::OkStatus();
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
  if (result_.completion != nullptr && result_.completion->Then(&callbacks)) return absl::OkStatus();
  Post(std::move(callbacks), KnownStatus());
  return absl::OkStatus();
}

void Handle::Post(std::list<CallbackThread::Callback> callbacks, const absl::Status& status) const {
  if (callbacks.empty()) return;
  for (CallbackThread::Callback& callback : callbacks) callback.status = status;
  RecordLearned();
  callback_thread_->Post(std::move(callbacks));
}

void Handle::Complete(absl::Status status) {
  RONDA_CHECK(state_.load(std::memory_order_relaxed) != State::kDone);
  status_ = std::move(status);
  if (state_.exchange(State::kDone, std::memory_order_acq_rel) == State::kAwaited) TellWaiters();
}

void Handle::TellWaiters() {
  std::list<CallbackThread::Callback> callbacks;
  std::list<CallbackThread::Callback> launch_callbacks;
  {
    MutexLock lock(&mu_);
    callbacks.swap(callbacks_);
    launch_callbacks.swap(launch_callbacks_);
  }
  // Notifies without holding the lock, because the threads take the lock when they wake up.
  completed_.NotifyAll();
  Post(std::move(launch_callbacks), status_);
  if (callbacks.empty() || (result_.completion != nullptr && result_.completion->Then(&callbacks))) return;
  Post(std::move(callbacks), KnownStatus());
}

void Handle::Complete(OperationResult result) {
  result_ = std::move(result);
  Complete(std::exchange(result_.status, absl::OkStatus()));
}

namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr int kToWrite = 1;

}  // namespace

BlockPool::~BlockPool() {
  MutexLock lock(&mu_);
  while (free_ != nullptr) {
    Link* const link = free_;
    free_ = link->next;
    ::operator delete(link);
  }
}

void* BlockPool::Allocate(size_t bytes) {
  {
    MutexLock lock(&mu_);
    if (block_bytes_ == 0 && bytes >= sizeof(Link)) block_bytes_ = bytes;
    if (bytes == block_bytes_ && free_ != nullptr) {
      Link* const link = free_;
      free_ = link->next;
      ++in_use_;
      PrefetchNextLocked();
      return link;
    }
  }
  void* const block = ::operator new(bytes);
  MutexLock lock(&mu_);
  ++in_use_;
  return block;
}

void BlockPool::PrefetchNextLocked() const {
  if (free_ == nullptr) return;
  const char* const block = reinterpret_cast<const char*>(free_);
  for (size_t at = 0; at < block_bytes_; at += kCacheLineBytes) __builtin_prefetch(block + at, kToWrite);
}

void BlockPool::Free(void* block, size_t bytes) noexcept {
  bool is_over = false;
  {
    MutexLock lock(&mu_);
    --in_use_;
    is_over = IsOverLocked();
    if (bytes == block_bytes_) {
      free_ = new (block) Link{free_};
      block = nullptr;
    }
  }
  ::operator delete(block);
  if (is_over) delete this;
}

void BlockPool::LoseOwner() {
  bool is_over = false;
  {
    MutexLock lock(&mu_);
    is_owned_ = false;
    is_over = IsOverLocked();
  }
  if (is_over) delete this;
}

}  // namespace ronda
