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

// One rank's membership in a job. A Runtime accepts named tensors from any thread, and carries out their operations in
// an order on which all ranks agree. The background thread, or a thread that waits for an operation, does the work
// (progress_engine.h). A Runtime has no global state, so one process can hold several ranks.
//
// Trainer threads fill the queue, and the steps of CoordinationLoop empty it. An error in a step fails the job
// (GuardedSteps). When the job fails, every handle in flight completes with the error, and the job is over.
//
//   std::unique_ptr<Runtime> runtime = Runtime::Create({}, topology, std::move(transport));
//   RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime->Submit({.name = "loss", ...}));
//   RONDA_RETURN_IF_ERROR(handle->Wait());
//
// Thread-safe; the progress thread makes the steps (progress_engine.h). A Runtime owns the transport of its rank. If it
// is destroyed without a shutdown, the other ranks treat this as a failure of this rank.
class Runtime {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock = Clock::Real();               // not owned
    size_t timeline_bytes = size_t{256} << 20;  // maximum size of a timeline's file
    absl::Duration device_timeout = Device::kTimeout;
    // If the job fails while streams of the trainer wait for the job's operations on a device, Ronda calls this
    // function once, with the reason. The waiting streams never continue, and the process can no longer use the device,
    // so it should end. The function must not block. If it is nullptr, the streams continue with undefined data.
    std::function<void(const std::string& why)> stream_is_held = nullptr;
    bool ends_when_held = false;  // whether the process ends after a call of stream_is_held
    // If other ranks have tensors on a device but this rank has none, it uses device number `device_hint` modulo the
    // number of devices. If it is unset, the local rank is the hint. An elastic job sets it, because in such a job the
    // local rank may change, but the device of the process must not.
    std::optional<int> device_hint;
  };

  // Starts the background thread.
  static std::unique_ptr<Runtime> Create(Options options, Topology topology, Transport transport);

  ~Runtime();

  const Topology& topology() const { return topology_; }

  // Returns the ranks of a process set in ascending order, by their numbers in the job. Set 0 contains all ranks.
  // Errors: INVALID_ARGUMENT if the set does not exist, or no longer exists.
  absl::StatusOr<std::shared_ptr<const Group>> ProcessSet(ProcessSetId id) const { return process_sets_.Find(id); }

  // Returns the ids of the existing process sets in ascending order.
  std::vector<ProcessSetId> ProcessSetIds() const { return process_sets_.Ids(); }

  // Returns the process set whose ranks remove set `id` together: `id` itself if the members of the set created it,
  // otherwise 0.
  ProcessSetId RemoversOf(ProcessSetId id) const { return process_sets_.RemoversOf(id); }

  // Submits a tensor. Never waits for other ranks. The caller owns the buffers, which must remain valid until the
  // handle is complete.
  //
  // Process sets are also added and removed by submissions, either from every rank of the job, or only from the members
  // of the set.
  //
  // Errors: INVALID_ARGUMENT if the submission is invalid; ALREADY_EXISTS if a tensor with the name is in flight in the
  // process set; CANCELLED after Shutdown; RESOURCE_EXHAUSTED if there is no memory for the submission; the job's
  // failure. The handle's errors: FAILED_PRECONDITION if ranks disagree about the tensor, or if it needs a rank that
  // has joined, or if its process set was removed; DEADLINE_EXCEEDED if some rank did not submit the tensor;
  // UNAVAILABLE if a rank has shut down. After these errors the job goes on. The handle may also return the job's
  // failure.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(const Submission& submission);

  // Submits all of `submissions`. After an error, none of them is submitted. Stores their handles in `*handles`, in the
  // same order, and reuses the memory of `*handles`. All tensors of a group (see TensorRequest::group) must be in one
  // call; they run or fail together.
  // Errors: those of Submit.
  absl::Status SubmitAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Checks whether Submit would accept `submissions`.
  // Errors: INVALID_ARGUMENT as for Submit.
  absl::Status Check(absl::Span<const Submission> submissions) const {
    return CheckSubmissions(submissions, submitter());
  }

  // Like SubmitAll, but does not check the submissions. REQUIRES: no tensor has a group, and Check() has accepted
  // `submissions`, which have not changed since. If the process set has been removed since Check(), the handles
  // complete with an error that says so.
  absl::Status SubmitChecked(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Submits a tensor, and waits until the operation is complete or MonotonicTime() reaches `deadline`. At the deadline
  // the operation may still be in flight. If no other thread drives the progress engine, the calling thread carries out
  // the operation itself. This saves two wake-ups: of the background thread, and of the calling thread. Errors: those
  // of Submit. The handle has the errors of the operation itself. The Runtime must outlive the call.
  absl::StatusOr<std::shared_ptr<Handle>> Run(const Submission& submission,
                                              absl::Duration deadline = absl::InfiniteDuration());

  // Like Run, but for all of `submissions`. Stores the handles of the submissions in `*handles`, in the same order. All
  // handles are complete when RunAll returns.
  // Errors: those of SubmitAll.
  absl::Status RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);

  // Makes this rank's GPU zero `bytes` at `memory`, after the work that is now on `stream` (a cudaStream_t). Does not
  // wait for the GPU.
  // Errors: INVALID_ARGUMENT if the memory belongs to the host or to another GPU; FAILED_PRECONDITION if there is no
  // GPU; INTERNAL for an error of the driver.
  absl::Status FillZeroOnDevice(void* memory, size_t bytes, void* stream) {
    return device_.FillZero(memory, bytes, stream);
  }

  // Opens the lane of a process set, unless it is open already. Once the lane is open, `lanes()` can carry out the
  // set's operations on GPU memory, in the order of the calls. All members of the set must call OpenLane at the same
  // point in the set's sequence of operations. OpenLane waits for all of them, and returns on each whether the lane is
  // open now (see OpenCallerLane). `buffer` is in the memory of this rank's GPU, or is nullptr. `limits` apply to the
  // lane's calls.
  // Errors: as OpenCallerLane; INVALID_ARGUMENT if the rank is not in the set.
  absl::StatusOr<bool> OpenLane(ProcessSetId process_set, const void* buffer, WaitLimits limits);

  CallerLanes& lanes() { return lanes_; }

  // Returns the memory that all ranks have registered together for gradients (RONDA_GRADIENT_MEMORY_MB). The first
  // operation on a device creates it. nullptr: there is none, or not yet.
  std::shared_ptr<LaneMemory> gradient_memory() const { return devices_.memory(); }

  // Returns this rank's GPU, or nullptr if this rank has not used a GPU yet.
  std::shared_ptr<const Device> device() const { return device_.chosen(); }

  // From now on, this rank writes a timeline, as a trace for Perfetto (docs/timeline.md). Each rank writes its own
  // file: `path` with the rank inserted.
  // Errors: FAILED_PRECONDITION if this rank already writes a timeline; the operating system's error, with the path.
  absl::Status StartTimeline(const std::string& path);

  // Ends the file of the timeline, as the end of the job also does. Does nothing if no timeline is written.
  void StopTimeline() { timeline_.Stop(); }

  // Returns the counters of this rank's work so far.
  Statistics statistics() const;

  // Completes all operations in flight on this rank, waits for its callbacks, notifies the other ranks, and waits until
  // all ranks have shut down. Shutdown is idempotent.
  // Errors: the job's failure, if the job has failed; DEADLINE_EXCEEDED, naming the ranks that have not shut down;
  // FAILED_PRECONDITION if a callback calls Shutdown, which would have to wait for this callback.
  absl::Status Shutdown();

  // Returns whether the calling thread is running a callback. In a callback, Shutdown returns an error.
  bool InCallback() const { return callbacks_->IsThisThread(); }

  // Must be called if this rank gives up the job. Fails the job on all ranks with `cause`, unless the job has already
  // ended.
  void Abandon(const absl::Status& cause);

  // Must be called if this rank's program ends without Shutdown(). The job goes on until the process has exited, and
  // then fails on the other ranks, with an error that says how this process ended. Returns when the other ranks can
  // learn of the exit, or after a few seconds at most. Any thread may call AnnounceExit.
  void AnnounceExit();

  // Returns the job's failure, or OK if this rank knows of none.
  absl::Status failure() const { return transport_.control->failure(); }

 private:
  Runtime(Options options, Topology topology, Transport transport);
  CallbackThread::Hooks MakeHooks();
  DeviceWatch::Options MakeWatchOptions();
  DeviceLanes::Options MakeDeviceOptions();
  std::unique_ptr<CoordinationLoop> MakeLoop();

  // The main function of the background thread. The thread sleeps in ControlPlane::Wait until a submission, a message
  // or a deadline gives it work. Returns when the job has ended.
  void RunBackgroundThread();

  // The following functions check tensors and add them to the queue. After an error or an exception none of the tensors
  // is in the queue.
  absl::StatusOr<std::shared_ptr<Handle>> Add(const Submission& submission, absl::Time now);
  absl::Status AddAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles);
  // Like AddAll, but does not check the tensors.
  absl::Status AddChecked(absl::Span<const Submission> submissions, absl::Time now,
                          std::vector<std::shared_ptr<Handle>>* handles);
  Submitter submitter() const;

  // Announce must be called when tensors were added to the queue at `now` and no thread waits for them. CarryOut
  // carries out one operation, and waits until it has ended or `deadline` has passed.
  void Announce(absl::Time now);
  void CarryOut(const Handle& handle, absl::Duration deadline = absl::InfiniteDuration());
  void Wake() { transport_.control->Wake(); }
  // Must be called when an operation or a callback has ended, because a shutdown may be waiting for it.
  void WakeForShutdown();

  // Carries out a request that a user has sent to this rank with rondactl.
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
  DeviceLanes devices_;  // belongs to the progress thread, except memory()
  GuardedSteps steps_;

  std::thread background_thread_;
  mutable Mutex mu_;
  CondVar job_ended_;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RUNTIME_H_
