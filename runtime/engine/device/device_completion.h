// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/device/device_waiters.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/progress_engine.h"

namespace ronda {

struct BucketTiming;

// The completion of a bucket on a device. It exists from the moment when the bucket is being put on the device. The
// DeviceWatch settles the completion. Once the bucket is launched, the watch shares the completion with the bucket's
// handles. The completion tells whether the bucket is done, and makes streams wait for the bucket. A launched bucket is
// final: all ranks carry it out, or the job fails.
//
// A completion is settled once, by the thread that first finds that the device has reached the end of the bucket, or
// that the job has failed. A thread that only wants to know whether the bucket is done asks the device. A thread that
// waits for the bucket sleeps until the watch has found that it is done.
//
// Thread-safe. Memory ordering: status_ is written before settled_ becomes true with release, and not after that. The
// bucket's event and timing_ are written before launch_ changes from kUnderWay.
class DeviceCompletion {
 public:
  struct Options {
    std::string label;  // "conv1/weight and 9 more"
    OpType op = OpType::kAllreduce;
    uint64_t bytes = 0;  // of this rank's tensors
    WaitLimits limits;
    std::shared_ptr<Device> device;
    std::shared_ptr<CallbackThread> callbacks;
    std::shared_ptr<ProgressEngine> progress;  // may be null
    // Returns the failure of the job or of the transport. It is needed because work that a failure has ended looks to
    // the device as if it were done. nullptr: no such function. The function is called under the completion's lock. It
    // is not called after the completion is settled, because the thread that ends the job or the transport settles the
    // completion first.
    std::shared_ptr<const std::function<absl::Status()>> failure;
    std::shared_ptr<DeviceWaiters> waiters;  // may be null
  };

  explicit DeviceCompletion(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }

  // The whole bucket is on its stream, and `event` is recorded behind it. Before this call only the watch has the
  // completion. Either Launch or Withdraw is called, once.
  void Launch(std::unique_ptr<DeviceEvent> event);

  // The times that the timeline will show. If called, then before Launch.
  void set_timing(std::shared_ptr<BucketTiming> timing) { timing_ = std::move(timing); }
  // For the watch. REQUIRES: settled.
  std::shared_ptr<BucketTiming> TakeTiming() { return std::move(timing_); }

  // No thread waits for the bucket, because this rank has no part in it. It is treated as done.
  void Withdraw();

  enum class Launching : uint8_t { kUnderWay, kDone, kWithdrawn };
  Launching launching() const { return launch_.load(std::memory_order_acquire); }

  // Whether the operation is complete or has failed.
  bool done();

  // Blocks until done. Returns the device's error, or the job's failure.
  absl::Status Wait() {
    WaitUntil(absl::InfiniteDuration());
    return status_;
  }

  // As Wait, but at most until MonotonicTime() reaches `deadline`. Returns whether it is done.
  bool WaitUntil(absl::Duration deadline);

  // REQUIRES: done.
  const absl::Status& status() const { return status_; }

  // Whether the bucket has failed while a stream waits for the bucket's work, which has not ended.
  // REQUIRES: settled.
  bool HoldsAStream();

  bool is_settled() const { return settled_.load(std::memory_order_acquire); }

  // Makes the work that is put on `stream` from now on wait for the bucket. The caller does not wait. Nothing is done
  // if the stream already waits for another tensor of the bucket. If the bucket fails after this call has returned OK,
  // HoldsAStream() takes the stream into account. REQUIRES: launched. Errors: the operation's error, if it has failed;
  // INVALID_ARGUMENT if the stream is being captured; the device's errors.
  absl::Status OrderBefore(WaitingStream& stream);

  // Runs `callbacks` with the bucket's status once the bucket is done, after the callbacks of earlier calls. Returns
  // false, and does nothing, if the bucket is done already.
  // REQUIRES: the callback thread has been started.
  bool Then(std::list<CallbackThread::Callback>* callbacks);

  // Only the first call has an effect.
  void Settle(absl::Status status);

 private:
  void SettleAs(absl::FunctionRef<absl::Status()> outcome);

  const Options options_;
  std::unique_ptr<DeviceEvent> event_;  // behind the bucket
  std::shared_ptr<BucketTiming> timing_;
  std::atomic<Launching> launch_{Launching::kUnderWay};
  std::atomic<bool> settled_{false};
  Mutex mu_;
  CondVar changed_;
  std::list<CallbackThread::Callback> callbacks_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> waiting_streams_ ABSL_GUARDED_BY(mu_);  // their numbers; usually one
  absl::Status status_;                                         // written before settled_ is true, read after that
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_
