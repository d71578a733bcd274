// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_RUNTIME_H_
#define RONDA_RUNTIME_ENGINE_RUNTIME_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
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
#include "runtime/engine/coordination_loop.h"
#include "runtime/engine/device/caller_lane.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/guarded_steps.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/rank_meter.h"
#include "runtime/monitor/rank_request.h"
#include "runtime/monitor/statistics.h"
#include "runtime/monitor/timeline/timeline.h"

namespace ronda {

// One rank's membership in a job. It accepts named tensors from any thread, and carries them out in an order that all
// ranks agree on. The work is done by a background thread, or by a thread that waits for it (progress_engine.h).
// Nothing here is global: several ranks can live in one process.
//
// Trainer threads fill the queue, and the steps of CoordinationLoop empty it. An error in a step fails the job
// (GuardedSteps): every handle in flight completes with it, and the job is over.
//
//   std::unique_ptr<Runtime> runtime = Runtime::Create({}, topology, std::move(transport));
//   RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime->Submit({.name = "loss", ...}));
//   RONDA_RETURN_IF_ERROR(handle->Wait());
//
// Thread-safe; the progress thread makes the steps (progress_engine.h). Owns the rank's transport. If a runtime is
// destroyed without a shutdown, the other ranks see that as a failure of this rank.
class Runtime {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock = Clock::Real();               // not owned
    size_t timeline_bytes = size_t{256} << 20;  // maximum size of a timeline's file
    absl::Duration device_timeout = Device::kTimeout;
    // Called once, with the reason, if the job fails while streams of the trainer wait for its operations on a device.
    // These streams never go on. So the process should end, because it can no longer use the device. The function must
    // not block its thread. nullptr: the streams go on, with undefined data.
    std::function<void(const std::string& why)> stream_is_held = nullptr;
    // For a rank that has no tensor on a device when other ranks have: the number of the device that it takes, modulo
    // the number of devices. If it is unset, the local rank is used. An elastic job sets it, because there the local
    // rank changes but the device of the process must not.
    std::optional<int> device_hint;
  };

  // Starts the background thread.
  static std::unique_ptr<Runtime> Create(Options options, Topology topology, Transport transport);

  ~Runtime();

  const Topology& topology() const { return topology_; }

  // Returns the ranks of a process set, ascending, with their numbers in the job; for set 0, all ranks.
  // Errors: INVALID_ARGUMENT if the set does not exist, or no longer exists.
  absl::StatusOr<std::shared_ptr<const Group>> ProcessSet(ProcessSetId id) const { return process_sets_.Find(id); }

  // The existing process sets, ascending.
  std::vector<ProcessSetId> ProcessSetIds() const { return process_sets_.Ids(); }

  // Returns the set whose ranks remove set `id` together. This is set `id` itself if its members created it, else set
  // 0.
  ProcessSetId RemoversOf(ProcessSetId id) const { return process_sets_.RemoversOf(id); }

  // Submits a tensor; never waits for other ranks. The buffers stay the caller's and must remain valid until the handle
  // is complete.
  //
  // Process sets are also added and removed by submissions, either of every rank of the job or of the set's members
  // alone.
  //
  // Errors: INVALID_ARGUMENT, ALREADY_EXISTS (name in flight in the process set), CANCELLED (after Shutdown),
  // RESOURCE_EXHAUSTED (no memory to submit it), or the job's failure.
  // The handle's errors: FAILED_PRECONDITION (ranks disagree about the tensor, or it needs a rank that has joined, or
  // its process set was removed), DEADLINE_EXCEEDED (some rank did not submit it), UNAVAILABLE (a rank has shut down).
  // After these errors the job goes on. The handle may also have the job's failure.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(const Submission& submission);

  // Submits all of `submissions`, or none if there is an error. Sets `*handles`, whose memory is used again, to their
  // handles, in the same order. All tensors of a group (see TensorRequest::group) are submitted in one call, and run or
  // fail together.
  // Errors: as Submit.
  absl::Status SubmitAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Whether Submit would accept these.
  // Errors: INVALID_ARGUMENT, as Submit.
  absl::Status Check(absl::Span<const Submission> submissions) const {
    return CheckSubmissions(submissions, submitter());
  }

  // SubmitAll for tensors without groups that Check() has accepted and that have not changed since. If their process
  // set has been removed meanwhile, the handles end with that error.
  absl::Status SubmitChecked(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Submits, and waits until the operation is complete, or until MonotonicTime() reaches `deadline`; then the operation
  // is still in flight. If no other thread drives, the calling thread carries out the operation itself. This saves two
  // wake-ups: of the background thread and back.
  // Errors: as Submit. The handle has the operation's own errors. The runtime must outlive the call.
  absl::StatusOr<std::shared_ptr<Handle>> Run(const Submission& submission,
                                              absl::Duration deadline = absl::InfiniteDuration());

  // As Run, for all of `submissions`. Sets `*handles` to their handles, all complete, in the same order.
  // Errors: as SubmitAll.
  absl::Status RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Lets this rank's GPU set some of its memory to zero, after the work that `stream` (a cudaStream_t) has so far. Does
  // not wait for it.
  // Errors: INVALID_ARGUMENT (memory of the host or of another GPU), FAILED_PRECONDITION (no GPU), INTERNAL.
  absl::Status FillZeroOnDevice(void* memory, size_t bytes, void* stream) {
    return device_.FillZero(memory, bytes, stream);
  }

  // Opens the lane of a process set, unless it is open: from then on the set's operations on GPU memory can go over
  // `lanes()`, in the order of the calls. All members of the set call it at the same point of their operations in the
  // set. Returns, on all of them, whether the lane is open now (see OpenCallerLane). Waits for the members. `buffer`,
  // which may be nullptr, is in the memory of this rank's GPU. `limits` apply to the lane's calls.
  // Errors: as OpenCallerLane; INVALID_ARGUMENT if the rank is not in the set.
  absl::StatusOr<bool> OpenLane(ProcessSetId process_set, const void* buffer, WaitLimits limits);

  CallerLanes& lanes() { return lanes_; }

  // This rank's GPU; nullptr if it has not used one yet.
  std::shared_ptr<const Device> device() const { return device_.chosen(); }

  // From now on this rank writes a timeline, as a trace for Perfetto (docs/timeline.md). Each rank has its own file:
  // `path` with the rank inserted.
  // Errors: FAILED_PRECONDITION if this rank already writes one; the operating system's error, with the path.
  absl::Status StartTimeline(const std::string& path);

  // Ends the file, as the end of the job also does. Does nothing if no timeline is written.
  void StopTimeline() { timeline_.Stop(); }

  // The counts of this rank so far.
  Statistics statistics() const;

  // Completes all operations in flight on this rank, waits for its callbacks, notifies the other ranks, and waits until
  // they have all shut down. Idempotent.
  // Errors: the job's failure, if it failed; DEADLINE_EXCEEDED that names the ranks that did not shut down;
  // FAILED_PRECONDITION if called from a callback, for which it would have to wait.
  absl::Status Shutdown();

  // Whether the calling thread runs a callback. In a callback, Shutdown returns an error.
  bool InCallback() const { return callbacks_->IsThisThread(); }

  // Called if this rank gives up. Unless the job has ended, the job fails with `cause` for all ranks.
  void Abandon(const absl::Status& cause);

  // Called if the program of this rank ends without Shutdown(). The job goes on here until the process is gone; then
  // the failure on the other ranks says how the process ended. Returns when the other ranks can know this, or after a
  // few seconds. Any thread may call this.
  void AnnounceExit();

  // The job's failure, as far as this rank knows; OK if it has not failed.
  absl::Status failure() const { return transport_.control->failure(); }

 private:
  Runtime(Options options, Topology topology, Transport transport);
  CallbackThread::Hooks MakeHooks();
  DeviceWatch::Options MakeWatchOptions();
  DeviceLanes::Options MakeDeviceOptions();
  std::unique_ptr<CoordinationLoop> MakeLoop();

  // Sleeps in ControlPlane::Wait until a submission, a message or a deadline gives it work. Returns when the job has
  // ended.
  void RunBackgroundThread();

  // Checks the tensors and adds them to the queue. After an error or an exception none of them is there.
  absl::StatusOr<std::shared_ptr<Handle>> Add(const Submission& submission, absl::Time now);
  absl::Status AddAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);
  // As AddAll, without the checks.
  absl::Status AddChecked(absl::Span<const Submission> submissions, absl::Time now,
                          std::vector<std::shared_ptr<Handle>>* handles);
  Submitter submitter() const;

  // Announce: tensors were added to the queue at `now`, and no thread waits for them. CarryOut: carries out one
  // operation and waits for it, until `deadline` at the latest.
  void Announce(absl::Time now);
  void CarryOut(const Handle& handle, absl::Duration deadline = absl::InfiniteDuration());
  void Wake() { transport_.control->Wake(); }
  // Called when something has ended for which a shutdown may wait.
  void WakeForShutdown();

  // Carries out a request that a user of rondactl makes to this rank.
  absl::StatusOr<std::string> CarryOutRequest(const TimelineRequest& request);

  const Topology topology_;
  const Options options_;
  Transport transport_;
  std::atomic<bool> shutdown_requested_{false};
  const std::shared_ptr<ProgressEngine> progress_;
  const std::shared_ptr<CallbackThread> callbacks_;
  ProcessSets process_sets_;
  Timeline timeline_;
  const std::unique_ptr<RankMeter> meter_;
  mutable std::atomic<uint64_t> exposed_told_{0};  // nanoseconds that the last call of statistics() returned
  TensorLog log_;
  TensorQueue queue_;
  RankDevice device_;
  CallerLanes lanes_;
  DeviceLanes devices_;  // belongs to the progress thread
  GuardedSteps steps_;

  std::thread background_thread_;
  mutable Mutex mu_;
  CondVar job_ended_;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RUNTIME_H_
