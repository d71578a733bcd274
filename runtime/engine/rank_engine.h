#ifndef RONDA_RUNTIME_ENGINE_RANK_ENGINE_H_
#define RONDA_RUNTIME_ENGINE_RANK_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/peer.h"
#include "runtime/collectives/transport.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/schedule_runner.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/rank_meter.h"
#include "runtime/monitor/statistics.h"
#include "runtime/monitor/timeline/timeline.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// A rank's part in a job: the queue that its trainer threads fill, and the steps that empty it. A step moves
// submissions to the negotiation, or carries out the coordinator's last response list, or the next bucket of the locked
// schedule; while a schedule is locked nothing is sent.
//
// Every error, and every exception, in a step is the job's failure: it is recorded for all ranks, every handle in
// flight completes with it, and the job is over.
//
// Thread-safety: the steps are made by the progress thread (progress_engine.h), the public functions are for any
// thread. Owns the rank's transport.
class RankEngine : private ProgressEngine::Steps {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock = Clock::Real();  // not owned
    std::string identity;          // "host h, pid 42"
  };

  RankEngine(Options options, const Topology& topology, Transport transport);

  // Waits for threads that drive.
  ~RankEngine() override { progress_->Disconnect(); }

  // The body of the background thread, which sleeps in ControlPlane::Wait until a submission, a message or a deadline
  // gives it something to do. Returns when the job has ended: OK after a shutdown of all ranks, else the job's failure.
  absl::Status Run();

  // Trainer threads add tensors to the queue, and then call one of these: for tensors that were added at `now` and for
  // which no thread waits, or to carry out one operation and wait for it, until `deadline` at the latest.
  TensorQueue& queue() { return queue_; }
  void Announce(absl::Time now);
  void CarryOut(const Handle& handle, absl::Duration deadline = absl::InfiniteDuration());
  // Rings the bell: the background thread comes and looks.
  void Wake() override { transport_.control->Wake(); }

  // The process sets, as far as this rank has carried out the agreed changes.
  const ProcessSets& process_sets() const { return process_sets_; }
  RankDevice& device() { return device_; }
  Timeline& timeline() { return timeline_; }  // off at first
  Statistics statistics() const { return Read(meter_->words().counters); }

  // The queue accepts no submission any more. Run returns once all that is in flight is complete, its callbacks have
  // run, and every rank has asked for the same.
  void RequestShutdown();

  // This rank gives up: the job fails with `status`, unless it has ended or failed already.
  void Abandon(const absl::Status& status);

  // Runs the callbacks that are left, unless called from one. Afterwards only its owner uses this object.
  // REQUIRES: Run has returned.
  void StopCallbacks() { callbacks_->Stop(); }
  bool IsCallbackThread() const { return callbacks_->IsThisThread(); }

 private:
  // A response list that is being carried out.
  struct Orders {
    Reporter::Work work;
    size_t next_bucket = 0;

    bool has_buckets() const { return next_bucket < work.buckets.size(); }
  };

  CallbackThread::Hooks MakeHooks();
  DeviceLanes::Options MakeDeviceOptions();
  // Called when an event has ended for which a shutdown may wait.
  void WakeForShutdown();

  // The progress engine's calls. Errors and exceptions end here.
  Progress Advance() override;
  Progress TakeNote(absl::Time now) override;
  absl::Time NextDeadline() override;
  // In a locked schedule, too: another rank may call it off.
  bool StartPolling() override { return control_->StartPolling(); }
  bool KeepPolling() override { return control_->KeepPolling(); }
  void StopPolling() override { control_->StopPolling(); }

  // Makes `step`; an error of it, or an exception, fails the job.
  Progress Guard(absl::FunctionRef<absl::StatusOr<Progress>()> step);
  absl::StatusOr<Progress> StepOrCatch(absl::FunctionRef<absl::StatusOr<Progress>()> step);
  void End();
  absl::Status Fail(const absl::Status& cause);
  absl::Status FailOrRetry(const absl::Status& cause);
  // One of Abseil's hash tables that found no memory to grow cannot be destroyed. The state that has such tables is
  // left where it is; the job is over and does not need it any more.
  void AbandonState();

  // Does the next thing that there is to do; kOver once every rank has shut down.
  absl::StatusOr<Progress> Step();
  absl::Status ReportFresh(absl::Time now);
  void TakeFresh(absl::Time now);
  void ShutDownIfDone(absl::Time now);
  void Report(TensorEntry& entry);
  // Once more those that were not to be reported yet.
  void ReportHeld();
  // A schedule has begun or was unlocked: the tensors in flight are submitted to the reporter once more.
  void ReportAnew();
  void ReportWhatWaited(absl::Time now);

  // kNone if no bucket of the locked schedule is ready.
  absl::StatusOr<Progress> FollowSchedule(absl::Time now);

  absl::StatusOr<Progress> Listen(absl::Time now);
  absl::Status Coordinate(absl::Time now);

  absl::StatusOr<Progress> CarryOutNext();
  absl::Status Begin(const std::string& list);
  void ApplySettings(const JobSettings& settings);
  void RecordOrders(const std::vector<AgreedBucket>& buckets);
  absl::Status Answer(const TensorError& error);
  absl::StatusOr<Progress> Conclude();

  const Options options_;
  const Topology topology_;
  Transport transport_;
  ControlPlane* const control_;  // the transport's
  std::atomic<bool> shutdown_requested_{false};
  std::atomic<bool> ended_{false};  // in good order
  const std::shared_ptr<ProgressEngine> progress_;
  const std::shared_ptr<CallbackThread> callbacks_;
  ProcessSets process_sets_;
  Timeline timeline_;
  const std::unique_ptr<RankMeter> meter_;
  TensorLog log_;
  TensorQueue queue_;
  RankDevice device_;
  // The rest belongs to the progress thread.
  DeviceLanes devices_;
  absl::Duration cycle_time_;  // the coordinator's, once it is known
  AnswerWatch answers_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<CoordinatorRole> role_;  // on the coordinator
  std::unique_ptr<ScheduleRunner> schedule_;
  bool started_ = false;
  std::vector<TensorEntry*> held_;       // taken, and reported when the executor may give them to the device
  std::vector<ControlMessage> reports_;  // on the coordinator: received, not taken
  std::deque<std::string> lists_;        // received, not begun
  std::optional<Orders> orders_;         // begun, not finished
  enum class Shutdown { kNo, kReported } shutdown_ = Shutdown::kNo;
  absl::Status result_;  // once the job is over
  // Made beforehand: there is no memory for it when it is needed.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory in the progress engine");
  const absl::Status shut_down_ = absl::CancelledError("the job has been shut down");
  std::unique_ptr<std::byte[]> emergency_memory_;  // given back when there is none left, to be able to say so
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RANK_ENGINE_H_
