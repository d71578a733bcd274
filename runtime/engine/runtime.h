#ifndef RONDA_RUNTIME_ENGINE_RUNTIME_H_
#define RONDA_RUNTIME_ENGINE_RUNTIME_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/rank_meter.h"
#include "runtime/monitor/rank_request.h"
#include "runtime/monitor/statistics.h"
#include "runtime/monitor/timeline/timeline.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// One rank's membership in a job: accepts named tensors from any thread, and has them carried out in an order that all
// ranks agree on. The work is done by a background thread, or by a thread that waits for it (progress_engine.h).
// Nothing here is global: several ranks can live in one process.
//
// Trainer threads fill the queue, and steps empty it. A step moves submissions to the negotiation, or carries out the
// coordinator's last response list, or the next bucket of the locked schedule; while a schedule is locked nothing is
// sent. Every error, and every exception, in a step is the job's failure: it is recorded for all ranks, every handle in
// flight completes with it, and the job is over.
//
//   std::unique_ptr<Runtime> runtime = Runtime::Create({}, topology, std::move(transport));
//   RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime->Submit({.name = "loss", ...}));
//   RONDA_RETURN_IF_ERROR(handle->Wait());
//
// Thread-safe; the steps are made by the progress thread (progress_engine.h). Owns the rank's transport. Destroying a
// runtime that was not shut down counts as a failure of this rank for the others.
class Runtime : private ProgressEngine::Steps {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock = Clock::Real();               // not owned
    size_t timeline_bytes = size_t{256} << 20;  // how large the file of a timeline may become
    absl::Duration device_patience = Device::kPatience;
    // The number of the device, modulo how many there are, that a rank takes which has no tensor on one when the others
    // have; its local rank, if unset. In an elastic job the local rank changes, and the process' device must not.
    std::optional<int> device_hint;
  };

  // Starts the background thread.
  static std::unique_ptr<Runtime> Create(Options options, Topology topology, Transport transport);

  ~Runtime() override;

  const Topology& topology() const { return topology_; }

  // The ranks of a process set, ascending, as ranks of the job; of set 0, all.
  // Errors: INVALID_ARGUMENT if there is no such set (any more).
  absl::StatusOr<std::shared_ptr<const Group>> ProcessSet(ProcessSetId id) const { return process_sets_.Find(id); }

  // The process sets that there are, ascending.
  std::vector<ProcessSetId> ProcessSetIds() const { return process_sets_.Ids(); }

  // The set whose ranks remove set `id` together: set 0, or the set itself if its members have created it.
  ProcessSetId RemoversOf(ProcessSetId id) const { return process_sets_.RemoversOf(id); }

  // Hands a tensor over; never waits for other ranks. The buffers stay the caller's and must remain valid until the
  // handle is complete.
  //
  // Process sets are added and removed by submissions too, of every rank of the job or of the set's members alone.
  //
  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS (name in flight in the process set), CANCELLED (after Shutdown),
  // RESOURCE_EXHAUSTED (no memory to submit it), or the job's failure.
  // The handle's errors: FAILED_PRECONDITION (ranks disagree about the tensor, or it needs a rank that has joined, or
  // its process set was removed), DEADLINE_EXCEEDED (some rank did not submit it), UNAVAILABLE (a rank has shut down);
  // the job goes on. Or the job's failure.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(const Submission& submission);

  // Hands over all of `submissions` or, after an error, none; the handles are in their order. Tensors of a group (see
  // TensorRequest::group) are handed over in one call, and run as a whole or fail as a whole.
  // Errors: as Submit.
  absl::StatusOr<std::vector<std::shared_ptr<Handle>>> SubmitAll(absl::Span<const Submission> submissions);

  // The same. `handles`, which is cleared first and may bring its memory along, receives the handles.
  absl::Status SubmitAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Whether Submit would accept these.
  // Errors: as Submit's INVALID_ARGUMENT.
  absl::Status Check(absl::Span<const Submission> submissions) const {
    return CheckSubmissions(submissions, submitter());
  }

  // SubmitAll of tensors without groups that Check() has accepted, and that have not changed since. Their process set
  // may be gone: then the handles end with that error.
  absl::Status SubmitChecked(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Submits and waits until the operation is complete; the calling thread carries it out itself if no other drives,
  // which spares two wake-ups, of the background thread and back. Or until MonotonicTime() has come to `deadline`; then
  // the operation is in flight.
  // Errors: as Submit; the operation's own are the handle's. The runtime must outlive the call.
  absl::StatusOr<std::shared_ptr<Handle>> Run(const Submission& submission,
                                              absl::Duration deadline = absl::InfiniteDuration());

  // The same for all of `submissions`; `*handles` becomes theirs, all of them complete, in their order.
  // Errors: as SubmitAll.
  absl::Status RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Has this rank's GPU set memory of its own to zero, after the work that `stream` (a cudaStream_t) has been given so
  // far; does not wait for that.
  // Errors: INVALID_ARGUMENT (memory of the host or of another GPU), FAILED_PRECONDITION (no GPU), INTERNAL.
  absl::Status FillZeroOnDevice(void* memory, size_t bytes, void* stream) {
    return device_.FillZero(memory, bytes, stream);
  }

  // This rank's GPU; nullptr while it has had no use for one.
  std::shared_ptr<const Device> device() const { return device_.chosen(); }

  // Has this rank write a timeline from now on, as a trace for Perfetto (docs/timeline.md), to a file of its own:
  // `path` with the rank inserted.
  // Errors: FAILED_PRECONDITION if it writes one already; that of the operating system, with the path.
  absl::Status StartTimeline(const std::string& path);

  // Ends the file. So does the end of the job. Nothing happens if there is none.
  void StopTimeline() { timeline_.Stop(); }

  // The counts of this rank so far.
  Statistics statistics() const;

  // Completes all operations in flight on this rank, waits for its callbacks, tells the others, and waits until all of
  // them have shut down too. Idempotent. Errors: the job's failure, if it failed; DEADLINE_EXCEEDED naming the ranks
  // that did not shut down; FAILED_PRECONDITION if called from a callback, which it would have to wait for.
  absl::Status Shutdown();

  // Whether the calling thread runs a callback, where Shutdown would refuse.
  bool InCallback() const { return callbacks_->IsThisThread(); }

  // This rank gives up: the job fails with `cause`, for all ranks, unless it has ended.
  void Abandon(const absl::Status& cause);

  // The program of this rank ends without Shutdown(). The job goes on here until the process is gone; then the failure
  // of the others says how it has ended. Returns once they can know, or after a few seconds. For any thread.
  void AnnounceExit();

  // The job's failure, as far as this rank knows; OK while there is none.
  absl::Status failure() const { return control_->failure(); }

 private:
  // A response list that is being carried out.
  struct Orders {
    Reporter::Work work;
    size_t next_bucket = 0;

    bool has_buckets() const { return next_bucket < work.buckets.size(); }
  };

  Runtime(Options options, Topology topology, Transport transport);
  CallbackThread::Hooks MakeHooks();
  DeviceLanes::Options MakeDeviceOptions();

  // Sleeps in ControlPlane::Wait until a submission, a message or a deadline gives it something to do. Returns when the
  // job has ended.
  void RunBackgroundThread();

  // Checks the tensors and adds them to the queue. An error or an exception leaves none of them there.
  absl::StatusOr<std::shared_ptr<Handle>> Add(const Submission& submission, absl::Time now);
  absl::Status AddAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);
  // The same without the checks.
  absl::Status AddChecked(absl::Span<const Submission> submissions, absl::Time now,
                          std::vector<std::shared_ptr<Handle>>* handles);
  Submitter submitter() const;

  // For tensors that were added to the queue at `now` and for which no thread waits; or to carry out one operation and
  // wait for it, until `deadline` at the latest.
  void Announce(absl::Time now);
  void CarryOut(const Handle& handle, absl::Duration deadline = absl::InfiniteDuration());
  // Rings the bell: the background thread comes and looks.
  void Wake() override { transport_.control->Wake(); }
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

  // What the user of rondactl asks of this rank.
  absl::StatusOr<std::string> CarryOutRequest(const TimelineRequest& request);

  // Does the next thing that there is to do; kOver once every rank has shut down.
  absl::StatusOr<Progress> Step();
  absl::Status ReportFresh(absl::Time now);
  // Whether the program waits: the coordinator finds out by that when ranks wait for each other.
  absl::Time NextLookAtProgram() const;
  void LookAtProgram(absl::Time now);
  void TakeFresh(absl::Time now);
  void ShutDownIfDone(absl::Time now);
  // Reports, once, that this rank submits nothing more, when all that it has submitted is reported.
  void Drain();
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

  const Topology topology_;
  const Options options_;
  Transport transport_;
  ControlPlane* const control_;  // the transport's
  std::atomic<bool> shutdown_requested_{false};
  std::atomic<bool> ended_{false};  // in good order
  const std::shared_ptr<ProgressEngine> progress_;
  const std::shared_ptr<CallbackThread> callbacks_;
  ProcessSets process_sets_;
  Timeline timeline_;
  const std::unique_ptr<RankMeter> meter_;
  mutable std::atomic<uint64_t> exposed_told_{0};  // nanoseconds: as the last call of statistics() has told
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
  absl::Time look_at_program_ = absl::InfiniteFuture();
  std::vector<TensorEntry*> held_;       // taken, and reported when the executor may give them to the device
  std::vector<ControlMessage> reports_;  // on the coordinator: received, not taken
  std::deque<std::string> lists_;        // received, not begun
  std::optional<Orders> orders_;         // begun, not finished
  enum class Departure { kNotYet, kDraining, kReported } departure_ = Departure::kNotYet;
  absl::Status outcome_;  // once the job is over: OK after a shutdown of all ranks, else the job's failure
  // Made beforehand: there is no memory for it when it is needed.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory in the progress engine");
  const absl::Status shut_down_ = absl::CancelledError("the job has been shut down");
  std::unique_ptr<std::byte[]> emergency_memory_;  // given back when there is none left, to be able to say so

  std::thread background_thread_;
  mutable Mutex mu_;
  CondVar job_ended_;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RUNTIME_H_
