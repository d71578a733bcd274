#ifndef RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_CONTROL_PLANE_H_

#include <memory>
#include <utility>

#include "runtime/control/control_plane.h"
#include "runtime/control/inprocess/in_process_job.h"

namespace ronda {

// The control plane of one rank of an InProcessJob. Thread-safe, as the job is.
class InProcessControlPlane : public ControlPlane {
 public:
  InProcessControlPlane(std::shared_ptr<InProcessJob> job, RankId rank) : job_(std::move(job)), rank_(rank) {}

  absl::Status SendToCoordinator(absl::string_view payload) override { return job_->SendToCoordinator(rank_, payload); }
  absl::Status Broadcast(absl::string_view payload) override;
  absl::StatusOr<Inbox> Receive() override { return job_->Receive(rank_); }
  void Wait(absl::Time deadline) override { job_->Wait(rank_, deadline); }
  void Wake() override { job_->Wake(rank_); }
  void CallOff(uint64_t schedule) override { job_->CallOff(schedule); }
  void Fail(const absl::Status& failure) override { job_->Fail(rank_, failure); }
  absl::Status failure() const override { return job_->failure(); }
  void Depart() override { job_->Depart(rank_); }

 private:
  const std::shared_ptr<InProcessJob> job_;
  const RankId rank_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_CONTROL_PLANE_H_
