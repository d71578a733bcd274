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

// Watches the buckets that are given to a rank's device, one after the other in the order of the stream. Its thread
// polls the device while a bucket is under way, and sleeps otherwise. While some thread waits for the device it polls
// often, otherwise every millisecond.
//
// The watch settles the buckets that the device has finished. If the device does not finish a bucket within the limits'
// warning time, the watch reports it; after the deadline the job fails.
//
// The limits also apply to a bucket that does not get onto the stream, because a device, a library or a rank may block
// the thread that puts it there. That thread has its own deadlines, and its errors say more about the reason. So the
// watch gives the thread a little more time than the limits (AnswerDeadline). If the deadline for connecting ranks is
// longer, the watch uses that deadline.
//
// An error of the device or of the transport also fails the job. When the job has failed, for any reason, the watch
// settles all buckets with the failure. Then it ends the work under way on the device, which may wait for a rank that
// is gone. Ended work looks to CUDA as if it were done, so a stream that waits for it would go on with a wrong result,
// for instance with an optimizer's step. If there is such a stream, the watch can hold the device instead
// (Options::stream_is_held).
//
// Thread-safe.
class DeviceWatch {
 public:
  // The watch's thread calls the functions, without a lock.
  struct Options {
    RankId rank = 0;
    std::shared_ptr<FlightBoard> flights;
    std::function<absl::Status()> job_failure;          // the job's first failure, or OK
    std::function<void(const absl::Status&)> fail_job;  // records a failure of the job
    std::function<absl::Status()> transport_failure;    // may be nullptr
    // The reason why a bucket that is being waited for will never end; OK: none is known. Called soon, and again
    // whenever the wait has become twice as long; may be nullptr.
    std::function<absl::Status(const DeviceCompletion&)> objection;
    std::function<void()> abort;  // ends the work under way; may be nullptr
    // Not nullptr: if a stream waits for a bucket when the job fails, the work under way is not ended but held
    // (Device::Hold), and this is called once, with the failure and what the stream waits for.
    std::function<void(const std::string& why)> stream_is_held;
    absl::Duration setup_deadline = absl::ZeroDuration();  // DeviceTransport's
    // Called for a bucket that the device has carried out, before any other thread is notified; may be nullptr.
    std::function<void(DeviceCompletion&)> carried_out;
    std::function<void()> idle;  // everything has been settled
    std::shared_ptr<DeviceWaiters> waiters = std::make_shared<DeviceWaiters>();
  };

  // Errors: RESOURCE_EXHAUSTED if the system has no thread to give.
  static absl::StatusOr<std::unique_ptr<DeviceWatch>> Start(Options options);
  ~DeviceWatch() { Stop(absl::CancelledError("the job is over")); }

  // `completion` is about to be launched, behind all others on the stream.
  // REQUIRES: all others are launched or withdrawn.
  void Watch(std::shared_ptr<DeviceCompletion> completion);

  // The last watched bucket has been launched or withdrawn.
  void RecordLaunch();

  // Whether everything has been settled.
  bool idle() const;

  // Buckets that are not settled yet, and later ones, fail with `status`, which is not OK. Ends the thread.
  void Stop(const absl::Status& status);

 private:
  // The watch waits until the bucket is on the stream, then until the device has finished it.
  enum class Phase : uint8_t { kLaunch, kDevice };

  explicit DeviceWatch(Options options) : options_(std::move(options)) {}

  void Run();
  // Returns false if the watch has been stopped.
  bool WatchNext();
  // Waits for the first bucket that is not settled, and returns it; nullptr if the watch has been stopped.
  std::shared_ptr<DeviceCompletion> AwaitNext();
  // Returns when it is settled.
  void Settle(DeviceCompletion& completion);
  // Returns when the phase is over, or with the job's failure.
  absl::Status Await(Phase phase, DeviceCompletion& completion);
  static bool IsOver(Phase phase, DeviceCompletion& completion);
  // The first bucket is settled.
  void Finish(DeviceCompletion& completion);
  void Record(DeviceCompletion& completion);
  absl::Duration DeadlineOf(Phase phase, const WaitLimits& limits) const;
  // `waited`: how long this completion has been the first in the queue, in this phase. Errors: the job's failure.
  absl::Status Check(Phase phase, DeviceCompletion& completion, absl::Duration waited, absl::Duration checked_before);
  absl::Status Fail(const absl::Status& cause);
  // Fails all buckets with `status`, also later ones, and holds the device if a stream waits for one of them. EndAll
  // settles them before it ends the work, because ended work looks as if it were done.
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
  // Only for the watch's thread:
  absl::Status failure_;  // the job's, once it has failed
  absl::Status thrown_;   // an exception, before it becomes failure_
  // Created in advance, because there is no memory for it when it is needed.
  const absl::Status out_of_memory_ =
      absl::ResourceExhaustedError("out of memory in the thread that watches the device");
  const absl::Status exception_ = absl::InternalError("an exception in the thread that watches the device");
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WATCH_H_
