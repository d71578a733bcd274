// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WATCH_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WATCH_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/engine/device/device_completion.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Watches the buckets that a rank enqueues on its device, one after another in stream order. While a bucket is in
// flight, the watch's thread polls the device: often if another thread waits for the device, and otherwise every
// millisecond. While no bucket is in flight, it sleeps.
//
// The watch settles the buckets that the device has finished. If a bucket does not finish within its warning time, the
// watch logs a warning. If it does not finish by its deadline, the job fails.
//
// A device, a library or a rank may also block the thread that enqueues a bucket. So the watch applies the limits to
// this thread, too. The thread has its own deadlines, and its errors describe the reason better. So the watch gives it
// a little more time than the bucket's deadline, or than the deadline for connecting ranks if that is longer
// (AnswerDeadline).
//
// An error of the device or of the transport also fails the job. When the job has failed, for any reason, the watch
// settles all buckets with the failure. Then it aborts the work in flight on the device, which may wait for a rank that
// is gone. CUDA reports aborted work as complete. So a stream that waits for the work would go on with a wrong result,
// for instance with an optimizer step. If there is such a stream, the watch can hold the device instead
// (Options::stream_is_held).
//
// Thread-safe.
class DeviceWatch {
 public:
  // The watch's thread calls these functions, without holding a lock.
  struct Options {
    RankId rank = 0;
    std::shared_ptr<FlightBoard> flights;
    std::function<absl::Status()> job_failure;          // the job's first failure, or OK
    std::function<void(const absl::Status&)> fail_job;  // records a failure of the job
    std::function<absl::Status()> transport_failure;    // may be nullptr
    // Returns why a bucket that a thread waits for will never end; OK if no reason is known. Called soon after the wait
    // has begun, and again whenever the wait has become twice as long. May be nullptr.
    std::function<absl::Status(const DeviceCompletion&)> objection;
    std::function<void()> abort;  // ends the work under way; may be nullptr
    // May be nullptr. If this function is set, and a stream waits for a bucket when the job fails, the watch holds the
    // device (Device::Hold) instead of aborting the work in flight. It then calls this function once, with the failure
    // and what the stream waits for.
    std::function<void(const std::string& why)> stream_is_held;
    bool ends_when_held = false;                           // whether the process ends after a call of stream_is_held
    absl::Duration setup_deadline = absl::ZeroDuration();  // DeviceTransport's
    // Called for each bucket that the device has carried out, after the bucket has been settled. May be nullptr.
    std::function<void(DeviceCompletion&)> carried_out;
    std::function<void()> idle;  // everything has been settled
    std::shared_ptr<DeviceWaiters> waiters = std::make_shared<DeviceWaiters>();
  };

  // Errors: RESOURCE_EXHAUSTED if the system cannot create a thread.
  static absl::StatusOr<std::unique_ptr<DeviceWatch>> Start(Options options);
  ~DeviceWatch() { Stop(absl::CancelledError("the job is over")); }

  // Begins to watch `completion`, whose bucket is about to be launched behind all other buckets on the stream.
  // REQUIRES: all earlier buckets have been launched or withdrawn.
  void Watch(std::shared_ptr<DeviceCompletion> completion);

  // Must be called when the last watched bucket has been launched or withdrawn.
  void RecordLaunch();

  // Whether all watched buckets have been settled.
  bool idle() const;

  // Settles all buckets that are not settled yet, and all later buckets, with `status`, which must not be OK. Ends the
  // thread.
  void Stop(const absl::Status& status);

 private:
  // In kLaunch, the watch waits until the bucket is on the stream; in kDevice, until the device has finished the
  // bucket.
  enum class Phase : uint8_t { kLaunch, kDevice };

  explicit DeviceWatch(Options options) : options_(std::move(options)) {}

  void Run();
  // Watches the next bucket to its end. Returns false if the watch has been stopped.
  bool WatchNext();
  // Waits for the first bucket that is not settled, and returns it; nullptr if the watch has been stopped.
  std::shared_ptr<DeviceCompletion> AwaitNext();
  // Waits for the bucket of `completion`, and returns when `completion` is settled.
  void Settle(DeviceCompletion& completion);
  // Waits until the phase is over. Returns OK, or the job's failure.
  absl::Status Await(Phase phase, DeviceCompletion& completion);
  static bool IsOver(Phase phase, DeviceCompletion& completion);
  // Removes the first bucket of the queue, which is settled.
  void Finish(DeviceCompletion& completion);
  void Record(DeviceCompletion& completion);
  absl::Duration DeadlineOf(Phase phase, const WaitLimits& limits) const;
  // Checks whether the job or the transport has failed, and whether the first bucket of the queue has reached a limit.
  // `waited` is how long the watch has waited for this bucket in this phase. Errors: the job's failure.
  absl::Status Check(Phase phase, DeviceCompletion& completion, absl::Duration waited, absl::Duration checked_before);
  absl::Status Fail(const absl::Status& cause);
  // SettleAll fails all buckets with `status`, including later buckets, and holds the device if a stream waits for one
  // of them. EndAll settles the buckets before it aborts the work, because the device reports aborted work as done.
  void SettleAll(const absl::Status& status);
  void EndAll(const absl::Status& status);
  void Hold(const DeviceCompletion& awaited);
  std::string Report(Phase phase, const DeviceCompletion& completion) const;
  void Sleep(Phase phase, const DeviceCompletion& completion, absl::Duration waited);
  absl::Status stopped() const;

  const Options options_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<std::shared_ptr<DeviceCompletion>> queue_ ABSL_GUARDED_BY(mu_);  // the first is being watched
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);  // not OK: stopped, or the job has failed; no bucket is watched any more
  // Only the watch's thread uses the next two members.
  absl::Status failure_;  // the job's, once it has failed
  absl::Status thrown_;   // an exception, before it becomes failure_
  // Created in advance, because no memory is left when it is needed.
  const absl::Status out_of_memory_ =
      absl::ResourceExhaustedError("out of memory in the thread that watches the device");
  const absl::Status exception_ = absl::InternalError("an exception in the thread that watches the device");
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WATCH_H_
