#ifndef RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_
#define RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/clock.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/topology.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/device/device_lanes.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/engine_driver.h"
#include "runtime/engine/process_sets.h"
#include "runtime/engine/rank_engine.h"
#include "runtime/engine/statistics.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/timeline/timeline.h"

namespace ronda {

// What trainer threads see of a rank's engine, and the body of its coordinator thread.
//
// The engine's steps are made by the coordinator thread, which sleeps in ControlPlane::Wait until a submission, a
// message or a deadline gives it something to do, and by trainer threads that wait (EngineDriver). Every error is the
// job's failure: it is recorded for all ranks, every handle in flight completes with it, and the loop ends.
//
// Thread-safety: Run is the coordinator thread; all else may be called from any thread.
class CoordinatorLoop : private EngineDriver::Engine {
 public:
  CoordinatorLoop(RankEngine::Options options, const Topology& topology, Transport transport);

  // Waits for threads that drive.
  ~CoordinatorLoop() override { driver_->Disconnect(); }

  // What the process sets are, as far as this rank has got.
  const ProcessSets& process_sets() const { return process_sets_; }

  Statistics statistics() const { return engine_.statistics(); }

  RankDevice& device() { return device_; }

  // Off at first.
  Timeline& timeline() { return timeline_; }

  // Submits all, or, after an error or an exception, none.
  absl::Status SubmitAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);
  absl::StatusOr<std::shared_ptr<Handle>> Submit(const Submission& submission);

  // The same, and waits until all are complete; the bell is not rung if this thread carries them out itself.
  absl::Status RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);
  absl::StatusOr<std::shared_ptr<Handle>> Run(const Submission& submission);

  // No submission is accepted any more; Run returns once what is in flight is complete, its callbacks have run, and
  // every rank has asked for the same.
  void RequestShutdown();

  // This rank gives up: the job fails with `status`, unless it has ended or failed already.
  void Abandon(const absl::Status& status);

  // Runs until the job ends. OK after a shutdown of all ranks, else the job's failure.
  absl::Status Run();

  // Runs the callbacks that are left, unless called from one. Afterwards nothing uses this object but its owner.
  // REQUIRES: Run has returned.
  void StopCallbacks() { callbacks_->Stop(); }
  bool IsCallbackThread() const { return callbacks_->IsThisThread(); }

 private:
  CallbackThread::Hooks MakeHooks();
  DeviceLanes::Options MakeDeviceOptions();
  // Nothing is left of something that a shutdown waits for.
  void WakeForShutdown() {
    if (shutdown_requested_.load()) Wake();
  }

  // What the public functions of these names begin with.
  absl::StatusOr<std::shared_ptr<Handle>> Add(const Submission& submission, absl::Time now);
  absl::Status AddAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Has the operation, which was submitted without ringing the bell, carried out, and waits for it.
  void CarryOut(const Handle& handle);

  // Has what was submitted `now` carried out some time.
  void Announce(absl::Time now);

  Progress Advance() override;
  Progress TakeNote(absl::Time now) override;
  absl::Time NextDeadline() override;
  void Wake() override { transport_.control->Wake(); }

  // `step` of the engine, or what its exception says.
  absl::StatusOr<Progress> StepOrCatch(absl::FunctionRef<absl::StatusOr<Progress>()> step);
  Progress AdvanceBy(absl::FunctionRef<absl::StatusOr<Progress>()> step);
  void End();
  absl::Status Fail(const absl::Status& cause);
  absl::Status FailOrRetry(const absl::Status& cause);

  const Topology topology_;
  Clock* const clock_;
  Transport transport_;
  std::atomic<bool> shutdown_requested_{false};
  std::atomic<bool> ended_{false};  // in good order
  const std::shared_ptr<EngineDriver> driver_;
  const std::shared_ptr<CallbackThread> callbacks_;
  ProcessSets process_sets_;
  Timeline timeline_;
  TensorLog log_;
  TensorQueue queue_;
  RankDevice device_;
  // The rest belongs to the thread that has the turn.
  DeviceLanes devices_;
  RankEngine engine_;
  absl::Status result_;  // once the job is over
  // Made beforehand: there is no memory for it when it is needed.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory in the coordinator thread");
  const absl::Status shut_down_ = absl::CancelledError("the job has been shut down");
  std::unique_ptr<std::byte[]> emergency_memory_;  // given back when there is none left, to be able to say so
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_
