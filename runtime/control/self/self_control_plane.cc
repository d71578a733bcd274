// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/self/self_control_plane.h"

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {

void SelfJob::Fail(const absl::Status& failure) {
  MutexLock lock(&mu_);
  if (failure_.ok()) failure_ = Attribute(failure, self_);
}

absl::Status SelfJob::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

absl::Status SelfControlPlane::SendToCoordinator(absl::string_view payload) {
  RONDA_RETURN_IF_ERROR(failure());
  inbox_.to_coordinator.push_back({.from = 0, .payload = std::string(payload)});
  Wake();
  return absl::OkStatus();
}

absl::Status SelfControlPlane::Broadcast(absl::string_view payload) {
  RONDA_RETURN_IF_ERROR(failure());
  inbox_.broadcasts.emplace_back(payload);
  Wake();
  return absl::OkStatus();
}

absl::StatusOr<ControlPlane::Inbox> SelfControlPlane::Receive() {
  RONDA_RETURN_IF_ERROR(failure());
  Inbox inbox = std::exchange(inbox_, Inbox{});
  MutexLock lock(&mu_);
  inbox.unlock_requested = unlock_requested_;
  return inbox;
}

void SelfControlPlane::Wait(absl::Time deadline) {
  MutexLock lock(&mu_);
  while (!woken_) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mu_, left);
  }
  woken_ = false;
}

void SelfControlPlane::Wake() {
  MutexLock lock(&mu_);
  woken_ = true;
  changed_.NotifyAll();
}

void SelfControlPlane::RequestUnlock(uint64_t schedule) {
  MutexLock lock(&mu_);
  unlock_requested_ = std::max(unlock_requested_, schedule);
  woken_ = true;
  changed_.NotifyAll();
}

void SelfControlPlane::Fail(const absl::Status& failure) {
  job_->Fail(failure);
  Wake();
}

}  // namespace ronda
