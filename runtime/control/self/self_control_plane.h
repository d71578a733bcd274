// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_SELF_SELF_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_SELF_SELF_CONTROL_PLANE_H_

#include <cstdint>
#include <memory>

#include "runtime/base/mutex.h"
#include "runtime/base/peer.h"
#include "runtime/control/control_plane.h"

namespace ronda {

// Holds the first failure of a job with one rank. The rank's control plane and communicator share this object.
// Thread-safe.
class SelfJob {
 public:
  explicit SelfJob(Peer self) : self_(std::move(self)) {}

  // Records `failure`, unless an earlier failure is recorded.
  void Fail(const absl::Status& failure);
  absl::Status failure() const;

 private:
  const Peer self_;
  mutable Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

// The control plane of a job with only one rank, which returns each message to its sender. It is the smallest complete
// implementation of ControlPlane.
class SelfControlPlane : public ControlPlane {
 public:
  explicit SelfControlPlane(std::shared_ptr<SelfJob> job) : job_(std::move(job)) {}

  absl::Status SendToCoordinator(absl::string_view payload) override;
  absl::Status Broadcast(absl::string_view payload) override;
  absl::StatusOr<Inbox> Receive() override;
  void Wait(absl::Time deadline) override;
  void Wake() override;
  void RequestUnlock(uint64_t schedule) override;
  void Fail(const absl::Status& failure) override;
  absl::Status failure() const override { return job_->failure(); }
  void Depart() override {}

 private:
  const std::shared_ptr<SelfJob> job_;
  Inbox inbox_;  // used by one thread at a time, see ControlPlane

  Mutex mu_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t unlock_requested_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_SELF_SELF_CONTROL_PLANE_H_
