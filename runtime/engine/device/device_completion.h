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

// The completion of a bucket on a device, created when the rank begins to enqueue the bucket. The DeviceWatch settles
// the completion, that is, sets the final status. After the launch of the bucket, the bucket's handles share ownership
// of the completion. The completion tells whether the bucket is done, and makes streams wait for the bucket. A launched
// bucket cannot be cancelled: either all ranks carry it out, or the job fails.
//
// A completion is settled once, by the first thread that finds that the device has finished the bucket or that the job
// has failed. done() itself queries the device. A thread that waits for the bucket sleeps until the watch has found the
// bucket done.
//
// Thread-safe. Memory ordering: status_ is written before the release store that sets settled_ to true, and never after
// this store. The bucket's event and timing_ are written before launch_ changes from kUnderWay.
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
    // Returns the failure of the job or of the transport. Needed because the device reports aborted work as done. May
    // be nullptr. Called with the completion's lock held, and never after the completion is settled: a thread that ends
    // the job or the transport settles the completion first.
    std::shared_ptr<const std::function<absl::Status()>> failure;
    std::shared_ptr<DeviceWaiters> waiters;  // may be null
  };

  explicit DeviceCompletion(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }

  // Must be called when the whole bucket is on its stream, with `event` recorded behind it. Before this call, only the
  // watch holds the completion. Exactly one call of Launch or Withdraw must be made.
  void Launch(std::unique_ptr<DeviceEvent> event);

  // Sets the times that the timeline will show. May only be called before Launch.
  void set_timing(std::shared_ptr<BucketTiming> timing) { timing_ = std::move(timing); }
  // Only the watch calls TakeTiming. REQUIRES: the completion is settled.
  std::shared_ptr<BucketTiming> TakeTiming() { return std::move(timing_); }

  // Must be called instead of Launch if this rank takes no part in the bucket, so that no thread waits for it. The
  // bucket then counts as done.
  void Withdraw();

  enum class Launching : uint8_t { kUnderWay, kDone, kWithdrawn };
  Launching launching() const { return launch_.load(std::memory_order_acquire); }

  // Whether the operation is complete or has failed.
  bool done();

  // Blocks until done() is true. Returns the device's error or the job's failure; otherwise OK.
  absl::Status Wait() {
    WaitUntil(absl::InfiniteDuration());
    return status_;
  }

  // Like Wait, but returns at the latest when MonotonicTime() reaches `deadline`. Returns whether the bucket is done.
  bool WaitUntil(absl::Duration deadline);

  // REQUIRES: done() has returned true.
  const absl::Status& status() const { return status_; }

  // Whether the bucket has failed, its work has not ended, and a stream waits for this work.
  // REQUIRES: the completion is settled.
  bool HoldsAStream();

  bool is_settled() const { return settled_.load(std::memory_order_acquire); }

  // Makes all later work on `stream` wait for the bucket. The calling thread does not wait. Does nothing if the stream
  // already waits for another tensor of the bucket. If the bucket fails later, HoldsAStream() takes the stream into
  // account. REQUIRES: Launch has been called. Errors: the operation's error, if the operation has failed;
  // INVALID_ARGUMENT if the stream is being captured; the device's errors.
  absl::Status OrderBefore(WaitingStream& stream);

  // Lets the callback thread run `callbacks` with the bucket's status when the bucket is done, after the callbacks of
  // earlier calls of Then. Returns false, and does nothing, if the bucket is done already.
  // REQUIRES: the callback thread has been started.
  bool Then(std::list<CallbackThread::Callback>* callbacks);

  // Sets the final status of the bucket. Only the first call of Settle has an effect.
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
