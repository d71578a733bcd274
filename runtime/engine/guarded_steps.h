// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_GUARDED_STEPS_H_
#define RONDA_RUNTIME_ENGINE_GUARDED_STEPS_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/control/control_plane.h"
#include "runtime/engine/coordination_loop.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/tensor_queue.h"

namespace ronda {

// Runs the steps of a CoordinationLoop, and ends the job on this rank if a step fails. Every error and every exception
// of a step fails the job: the failure is recorded for all ranks, every handle in flight completes with it, and no
// further step is made.
//
// Thread-safe as ProgressEngine::Steps requires: the progress thread makes the steps, and any thread may call Wake.
class GuardedSteps : public ProgressEngine::Steps {
 public:
  // GuardedSteps owns none of these objects; all must outlive it.
  struct Parts {
    RankId rank;
    ControlPlane* control;
    TensorQueue* queue;
    DeviceLanes* devices;
  };

  GuardedSteps(const Parts& parts, std::unique_ptr<CoordinationLoop> loop);

  Progress Advance() override;
  Progress OnSubmission(absl::Time now) override;
  absl::Time NextDeadline() override { return loop_->NextDeadline(); }
  // Wakes up the background thread, which then looks for work.
  void Wake() override { parts_.control->Wake(); }
  // While a schedule is locked, threads still poll the control plane, because another rank may request an unlock.
  bool StartPolling() override { return parts_.control->StartPolling(); }
  bool KeepPolling() override { return parts_.control->KeepPolling(); }
  void StopPolling() override { parts_.control->StopPolling(); }

  // Returns whether all ranks have shut down. After that, no failure may be recorded, because other ranks may not have
  // learned yet that the job has ended. Any thread may call has_ended.
  bool has_ended() const { return has_ended_.load(); }

  // Returns OK if all ranks have shut down, or else the job's failure.
  // REQUIRES: a step has returned kOver.
  const absl::Status& outcome() const { return outcome_; }

 private:
  using Step = absl::FunctionRef<absl::StatusOr<Progress>()>;

  // Runs `step`. If `step` returns an error or throws an exception, the job fails.
  Progress Guard(Step step);
  absl::StatusOr<Progress> StepOrCatch(Step step);
  void End();
  absl::Status Fail(const absl::Status& cause);
  absl::Status FailOrRetry(const absl::Status& cause);

  const Parts parts_;
  // If memory has run out, the loop is never destroyed, because an Abseil hash table cannot be destroyed after an
  // allocation has failed in it.
  std::unique_ptr<CoordinationLoop> loop_;
  std::atomic<bool> has_ended_{false};
  absl::Status outcome_;
  // The constructor creates these errors, because no memory may be left when they are needed.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory in the progress engine");
  const absl::Status shut_down_ = absl::CancelledError("the job has been shut down");
  std::unique_ptr<std::byte[]> emergency_memory_;  // freed when memory runs out, so that the error can be reported
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_GUARDED_STEPS_H_
