// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKES_H_
#define RONDA_TESTS_TESTING_FAKES_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/control/control_plane.h"

namespace ronda::testing {

// A clock that stands still until a test advances it. Thread-safe.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch() + absl::Hours(1)) : now_(start) {}

  absl::Time Now() const override {
    MutexLock lock(&mu_);
    return now_;
  }

  void Advance(absl::Duration duration) {
    MutexLock lock(&mu_);
    now_ += duration;
  }

 private:
  mutable Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
};

// A control plane that forwards all calls to another control plane. Tests derive from it to inspect messages, or to
// delay messages so that a race between them always ends the same way.
//
// Thread-safe if the other control plane is thread-safe.
class ForwardingControlPlane : public ControlPlane {
 public:
  explicit ForwardingControlPlane(std::unique_ptr<ControlPlane> to) : to_(std::move(to)) {}

  absl::Status SendToCoordinator(absl::string_view payload) override { return to_->SendToCoordinator(payload); }
  absl::Status Broadcast(absl::string_view payload) override { return to_->Broadcast(payload); }
  absl::StatusOr<Inbox> Receive() override { return to_->Receive(); }
  void Wait(absl::Time deadline) override { to_->Wait(deadline); }
  void Wake() override { to_->Wake(); }
  bool StartPolling() override { return to_->StartPolling(); }
  bool KeepPolling() override { return to_->KeepPolling(); }
  void StopPolling() override { to_->StopPolling(); }
  void RequestUnlock(uint64_t schedule) override { to_->RequestUnlock(schedule); }
  void Fail(const absl::Status& failure) override { to_->Fail(failure); }
  absl::Status failure() const override { return to_->failure(); }
  void Depart() override { to_->Depart(); }

 private:
  const std::unique_ptr<ControlPlane> to_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKES_H_
