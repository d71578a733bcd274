#include "runtime/engine/device/device_completion.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/rank_device.h"

namespace ronda {
namespace {

// A device is often almost there: to be woken takes longer.
constexpr absl::Duration kSpin = absl::Microseconds(20);
constexpr absl::Duration kDecisionNap = absl::Microseconds(100);

// Has the watch ask the device often while it lives.
class Waiter {
 public:
  explicit Waiter(Attention* attention) : attention_(attention) {
    if (attention_ != nullptr) attention_->Begin();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() {
    if (attention_ != nullptr) attention_->End();
  }

 private:
  Attention* const attention_;
};

}  // namespace

void DeviceCompletion::Launch(std::unique_ptr<DeviceEvent> event, Waiting waiting, Undecided undecided) {
  event_ = std::move(event);
  waiting_ = waiting;
  number_ = undecided.number;
  {
    MutexLock lock(&mu_);
    // It may have been settled while it was being launched. Then no stream may come to wait for the gate.
    if (!is_settled()) vote_ = std::move(undecided.vote);
  }
  launch_.store(Launching::kDone, std::memory_order_release);
}

void DeviceCompletion::Relaunch(std::unique_ptr<DeviceEvent> event) {
  {
    MutexLock lock(&mu_);
    again_ = std::move(event);
    relaunched_.store(true, std::memory_order_release);
  }
  changed_.NotifyAll();
}

bool DeviceCompletion::IsVetoed() {
  MutexLock lock(&mu_);
  return vote_ != nullptr && !relaunched_.load(std::memory_order_relaxed) &&
         vote_->outcome() == OpenVote::Outcome::kVetoed;
}

std::shared_ptr<const OpenVote> DeviceCompletion::vote() {
  MutexLock lock(&mu_);
  return vote_;
}

bool DeviceCompletion::Refuse(absl::string_view tensor, const absl::Status& status) {
  MutexLock lock(&mu_);
  refused_.emplace_back(std::string(tensor), status);
  return is_awaited_;
}

absl::Status DeviceCompletion::RefusalOf(absl::string_view tensor) {
  MutexLock lock(&mu_);
  return RefusalLocked(tensor);
}

absl::Status DeviceCompletion::RefusalLocked(absl::string_view tensor) const {
  for (const auto& [refused, status] : refused_) {
    if (refused == tensor) return status;
  }
  return absl::OkStatus();
}

bool DeviceCompletion::IsUndecidedLocked() const {
  return vote_ != nullptr && !relaunched_.load(std::memory_order_relaxed) &&
         vote_->outcome() != OpenVote::Outcome::kCarriedOut;
}

absl::Status DeviceCompletion::CheckDevice() {
  const std::shared_ptr<const OpenVote> vote = this->vote();
  if (launching() != Launching::kDone || vote == nullptr) return absl::OkStatus();
  const absl::StatusOr<bool> passed = event().done();
  if (!passed.ok() || !*passed || vote->outcome() != OpenVote::Outcome::kOpen) return passed.status();
  return absl::InternalError("the device has carried out a bucket without counting its votes");
}

void DeviceCompletion::Withdraw() {
  launch_.store(Launching::kWithdrawn, std::memory_order_release);
  Settle(absl::OkStatus());
}

bool DeviceCompletion::done() {
  if (settled_.load(std::memory_order_acquire)) return true;
  if (launching() != Launching::kDone) return false;
  {
    // The word first: to ask for an event is a call of the driver.
    MutexLock lock(&mu_);
    if (IsUndecidedLocked()) return false;
  }
  const absl::StatusOr<bool> passed = event().done();
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
  const Waiter waiter(options_.attention.get());
  MutexLock lock(&mu_);
  while (!settled_.load(std::memory_order_acquire)) {
    const absl::Duration left = deadline - MonotonicTime();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

absl::Status DeviceCompletion::OrderBefore(StreamHandle stream, absl::string_view tensor) {
  const bool is_settled = settled_.load(std::memory_order_acquire);
  if (is_settled && !status_.ok()) return status_;
  // First: whether a program is right must not depend on how fast the device is.
  RONDA_ASSIGN_OR_RETURN(const uint64_t id,
                         IdOfStream(*options_.device, stream, "wait for the operation before or after the capture"));
  if (is_settled) return RefusalOf(tensor);
  Point point;
  {
    MutexLock lock(&mu_);
    if (settled_.load(std::memory_order_relaxed) && !status_.ok()) return status_;
    RONDA_RETURN_IF_ERROR(RefusalLocked(tensor));
    if (std::find(waiting_streams_.begin(), waiting_streams_.end(), id) != waiting_streams_.end()) {
      return absl::OkStatus();
    }
    is_awaited_ = true;  // before the stream waits: a thread that refuses a tensor from now on knows of it
    point = PointLocked();
  }
  RONDA_RETURN_IF_ERROR(HaveWait(stream, point));
  MutexLock lock(&mu_);
  waiting_streams_.push_back(id);
  return absl::OkStatus();
}

DeviceCompletion::Point DeviceCompletion::PointLocked() const {
  return {.event = &event(), .vote = IsUndecidedLocked() ? vote_ : nullptr};
}

absl::Status DeviceCompletion::HaveWait(StreamHandle stream, const Point& point) {
  if (point.vote == nullptr) return point.event->OrderBefore(stream);
  int shares = 0;
  RONDA_RETURN_IF_ERROR(options_.device->Call(
      "looking at the stream", [&](const ronda_cuda_plugin& cuda) { return cuda.shares_queues(stream, &shares); }));
  if (shares != 0) {
    AwaitDecision();
    if (is_settled() && !status_.ok()) return status_;
    return event().OrderBefore(stream);
  }
  // For the device's scheduler, to which the word says nothing.
  RONDA_RETURN_IF_ERROR(point.event->OrderBefore(stream));
  // Before the wait: a point that is noted behind it shall know of it.
  options_.order->NoteWait(number_);
  return options_.device->Call("having a stream wait for a decision", [&](const ronda_cuda_plugin& cuda) {
    return cuda.wait_word(stream, point.vote->gate(), point.vote->opens_at());
  });
}

// The device decides, and no thread is told; the watch comes later.
void DeviceCompletion::AwaitDecision() {
  const Waiter waiter(options_.attention.get());
  MutexLock lock(&mu_);
  while (!settled_.load(std::memory_order_acquire) && IsUndecidedLocked()) changed_.WaitFor(&mu_, kDecisionNap);
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
    // Of a bucket that has been carried out it is open. Otherwise streams would wait for ever.
    if (vote_ != nullptr && !status_.ok()) vote_->OpenGate();
    vote_.reset();
    settled_.store(true, std::memory_order_release);
  }
  changed_.NotifyAll();
  for (CallbackThread::Callback& callback : callbacks) {
    callback.status = status_.ok() ? RefusalOf(*callback.tensor) : AboutTensor(*callback.tensor, status_);
  }
  if (!callbacks.empty() && options_.progress != nullptr) options_.progress->NoteLearned();
  options_.callbacks->Post(std::move(callbacks));
}

}  // namespace ronda
