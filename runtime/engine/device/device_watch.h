#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WATCH_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WATCH_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/engine/device/device_completion.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Watches the buckets that are given to a rank's device, one after the other as the stream has them: a thread that asks
// the device now and then while one is under way, and sleeps otherwise.
//
// While some thread waits for the device it is asked often, otherwise every millisecond.
//
// It settles the buckets that the device is done with. Those whose vote was lost it puts aside, until they have been
// launched again. A bucket that the device does not come to for longer than the
// limits' warning is reported; beyond the deadline the job fails. The same holds for one that does not come onto the
// stream: the thread that puts it there may be held up by a device, a library or a rank. That has deadlines of its own,
// which know more of the reason, and gets a little more time here (AnswerDeadline); that of connecting ranks may be the
// longer one. An error of the device, or of the transport, fails the job too. And once the job has failed, for any
// reason, the watch settles all buckets with the failure, and then ends the work under way on the device, which may
// wait for a rank that is gone.
//
// Thread-safe.
class DeviceWatch {
 public:
  // Functions are called by the watch's thread, without a lock.
  struct Options {
    RankId rank = 0;
    std::shared_ptr<FlightBoard> flights;
    std::function<absl::Status()> job_failure;             // the job's first failure, or OK
    std::function<void(const absl::Status&)> fail_job;     // records one
    std::function<absl::Status()> transport_failure;       // may be nullptr
    std::function<void()> abort;                           // ends the work under way; may be nullptr
    absl::Duration setup_deadline = absl::ZeroDuration();  // DeviceTransport's
    // A bucket that the device has carried out, before any other thread is told; may be nullptr.
    std::function<void(DeviceCompletion&)> carried_out;
    std::function<void()> settled;  // something that the engine waits for has been settled
    std::function<void()> idle;     // everything has been
    std::shared_ptr<Attention> attention = std::make_shared<Attention>();
  };

  // Errors: RESOURCE_EXHAUSTED if the system has no thread to give.
  static absl::StatusOr<std::unique_ptr<DeviceWatch>> Start(Options options);
  ~DeviceWatch() { Stop(absl::CancelledError("the job is over")); }

  // `completion` is about to be launched, behind all others on the stream.
  // REQUIRES: all others are launched, or withdrawn.
  void Watch(std::shared_ptr<DeviceCompletion> completion);

  // The last that is watched has been launched, or withdrawn.
  void NoteLaunch();

  // A bucket whose vote was lost has been launched again, behind all others on the stream.
  void NoteRelaunch(const std::shared_ptr<DeviceCompletion>& completion);

  // Whether everything has been settled.
  bool idle() const;

  // Buckets that are not settled yet fail with `status`, which is not OK; so do later ones. Ends the thread.
  void Stop(const absl::Status& status);

 private:
  // The watch waits until the bucket is on the stream, then until the device comes to its end.
  enum class Phase : uint8_t { kLaunch, kDevice };

  explicit DeviceWatch(Options options) : options_(std::move(options)) {}

  void Run();
  // False: the watch has been stopped.
  bool WatchNext();
  // The first that is not settled; waits for it. nullptr: the watch has been stopped.
  std::shared_ptr<DeviceCompletion> AwaitNext();
  // Returns once it is settled.
  void Settle(DeviceCompletion& completion);
  // Returns once the phase is over, or with a failure of the job's.
  absl::Status Await(Phase phase, DeviceCompletion& completion);
  static bool IsOver(Phase phase, DeviceCompletion& completion);
  // Settled, or put aside; or it has been launched again meanwhile, and stays the first.
  void Finish(const std::shared_ptr<DeviceCompletion>& completion);
  void Record(DeviceCompletion& completion);
  absl::Duration DeadlineOf(Phase phase, const WaitLimits& limits) const;
  // `waited`: since this completion is the first in this phase. Errors: the job's failure.
  absl::Status Check(Phase phase, DeviceCompletion& completion, absl::Duration waited, absl::Duration checked_before);
  absl::Status Fail(const absl::Status& cause);
  // All buckets fail with `status`. In this order: ended work looks as if it were done.
  void SettleAll(const absl::Status& status);
  void EndAll(const absl::Status& status);
  std::string Report(Phase phase, const DeviceCompletion& completion) const;
  void Nap(Phase phase, const DeviceCompletion& completion, absl::Duration waited);
  absl::Status stopped() const;

  const Options options_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<std::shared_ptr<DeviceCompletion>> queue_ ABSL_GUARDED_BY(mu_);    // the first is being watched
  std::vector<std::shared_ptr<DeviceCompletion>> vetoed_ ABSL_GUARDED_BY(mu_);  // put aside
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);                                   // OK: it has not been
  // Of the thread:
  absl::Status failure_;  // the job's, once there is one
  absl::Status thrown_;   // an exception that is to become it
  // Made beforehand: there is no memory for it when it is needed.
  const absl::Status out_of_memory_ =
      absl::ResourceExhaustedError("out of memory in the thread that watches the device");
  const absl::Status exception_ = absl::InternalError("an exception in the thread that watches the device");
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_WATCH_H_
