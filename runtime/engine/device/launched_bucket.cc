// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/launched_bucket.h"

#include <algorithm>

#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr absl::Duration kDecisionNap = absl::Microseconds(100);

}  // namespace

void LaunchedBucket::Launch(std::unique_ptr<DeviceEvent> event, Undecided undecided) {
  event_ = std::move(event);
  number_ = undecided.number;
  MutexLock lock(&mu_);
  // The bucket may have been settled while it was being launched. Then no stream may wait for the gate.
  if (!has_ended_) vote_ = std::move(undecided.vote);
}

void LaunchedBucket::Relaunch(std::unique_ptr<DeviceEvent> event) {
  {
    MutexLock lock(&mu_);
    again_ = std::move(event);
    relaunched_.store(true, std::memory_order_release);
  }
  changed_.NotifyAll();
}

void LaunchedBucket::End(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    has_ended_ = true;
    failure_ = status;
    // The gate of a bucket that has been carried out is open. After a failure streams would otherwise wait for ever.
    if (vote_ != nullptr && !status.ok()) vote_->OpenGate();
    vote_.reset();
  }
  changed_.NotifyAll();
}

bool LaunchedBucket::IsVetoed() {
  MutexLock lock(&mu_);
  return vote_ != nullptr && !relaunched_.load(std::memory_order_relaxed) &&
         vote_->outcome() == OpenVote::Outcome::kVetoed;
}

std::shared_ptr<const OpenVote> LaunchedBucket::vote() {
  MutexLock lock(&mu_);
  return vote_;
}

bool LaunchedBucket::IsUndecidedLocked() const {
  return vote_ != nullptr && !relaunched_.load(std::memory_order_relaxed) &&
         vote_->outcome() != OpenVote::Outcome::kCarriedOut;
}

absl::StatusOr<bool> LaunchedBucket::IsPassed() {
  {
    // Checks the vote's word first, because asking for an event is a call of the driver.
    MutexLock lock(&mu_);
    if (IsUndecidedLocked()) return false;
  }
  return event().done();
}

absl::Status LaunchedBucket::CheckDevice() {
  const std::shared_ptr<const OpenVote> vote = this->vote();
  if (vote == nullptr) return absl::OkStatus();
  const absl::StatusOr<bool> passed = event().done();
  if (!passed.ok() || !*passed || vote->outcome() != OpenVote::Outcome::kOpen) return passed.status();
  return absl::InternalError("the device has carried out a bucket without counting its votes");
}

bool LaunchedBucket::Refuse(absl::string_view tensor, const absl::Status& status) {
  MutexLock lock(&mu_);
  refused_.emplace_back(std::string(tensor), status);
  return is_awaited_;
}

absl::Status LaunchedBucket::RefusalOf(absl::string_view tensor) {
  MutexLock lock(&mu_);
  return RefusalLocked(tensor);
}

absl::Status LaunchedBucket::RefusalLocked(absl::string_view tensor) const {
  for (const auto& [refused, status] : refused_) {
    if (refused == tensor) return status;
  }
  return absl::OkStatus();
}

absl::Status LaunchedBucket::OrderBefore(StreamHandle stream, uint64_t id, absl::string_view tensor) {
  Point point;
  {
    MutexLock lock(&mu_);
    RONDA_RETURN_IF_ERROR(failure_);
    RONDA_RETURN_IF_ERROR(RefusalLocked(tensor));
    if (std::find(waiting_streams_.begin(), waiting_streams_.end(), id) != waiting_streams_.end()) {
      return absl::OkStatus();
    }
    is_awaited_ = true;  // before the stream waits, so that a thread that refuses a tensor sees it
    point = {.event = &event(), .vote = IsUndecidedLocked() ? vote_ : nullptr};
  }
  RONDA_RETURN_IF_ERROR(HaveWait(stream, id, point));
  MutexLock lock(&mu_);
  waiting_streams_.push_back(id);
  return absl::OkStatus();
}

absl::Status LaunchedBucket::HaveWait(StreamHandle stream, uint64_t id, const Point& point) {
  const Device::Current current(parts_.device);
  if (point.vote == nullptr) return point.event->OrderBefore(stream);
  RONDA_ASSIGN_OR_RETURN(const bool shares, SharesQueues(stream, id));
  if (shares) {
    RONDA_RETURN_IF_ERROR(AwaitDecision());
    return event().OrderBefore(stream);
  }
  // For the device's scheduler, to which the word means nothing.
  RONDA_RETURN_IF_ERROR(point.event->OrderBefore(stream));
  // Before the wait, so that a point recorded behind it includes it.
  parts_.order->NoteWait(number_);
  return parts_.device->Call("having a stream wait for a decision", [&](const ronda_cuda_plugin& cuda) {
    return cuda.wait_word(stream, point.vote->gate(), point.vote->opens_at());
  });
}

absl::StatusOr<bool> LaunchedBucket::SharesQueues(StreamHandle stream, uint64_t id) {
  if (parts_.order->HasOwnQueues(id)) return false;
  int shares = 0;
  RONDA_RETURN_IF_ERROR(parts_.device->Call(
      "looking at the stream", [&](const ronda_cuda_plugin& cuda) { return cuda.shares_queues(stream, &shares); }));
  if (shares == 0) parts_.order->NoteOwnQueues(id);
  return shares != 0;
}

// The device decides, and no thread is notified at that moment; the watch comes later.
absl::Status LaunchedBucket::AwaitDecision() {
  const Waiter waiter(parts_.attention);
  MutexLock lock(&mu_);
  while (!has_ended_ && IsUndecidedLocked()) changed_.WaitFor(&mu_, kDecisionNap);
  return failure_;
}

}  // namespace ronda
