#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/device/attention.h"
#include "runtime/engine/device/launched_bucket.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/progress_engine.h"

namespace ronda {

struct BucketTiming;

// The completion of a bucket on a device, from the moment at which the bucket is being given to it. Shared by the
// DeviceWatch, which settles it, and, once it is launched, by the bucket's handles. It says whether the bucket is done;
// what streams wait for is the LaunchedBucket's matter.
//
// Settled once: by the thread that first finds that the device has got there, or that the job has failed. A thread that
// only wants to know asks the device; one that waits sleeps until the watch has found out.
//
// Thread-safe. Memory ordering: status_ is written before settled_ becomes true with release, and not after that; so
// are the bucket's event, waiting_ and timing_ before launch_ is other than kUnderWay.
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
    // The failure of the job, or of the transport: work that was ended by one has come to its end, too, but has not
    // been done. nullptr: there is none. Called under the completion's lock, and not once this is settled: the thread
    // that ends the job or the transport settles this before.
    std::shared_ptr<const std::function<absl::Status()>> failure;
    std::shared_ptr<Attention> attention;  // may be null
    std::shared_ptr<StreamOrder> order;    // may be null if no bucket has a vote
  };

  explicit DeviceCompletion(Options options)
      : options_(std::move(options)),
        bucket_(
            {.device = options_.device.get(), .attention = options_.attention.get(), .order = options_.order.get()}) {}

  const Options& options() const { return options_; }

  // REQUIRES, unless said otherwise there: launching() is kDone.
  LaunchedBucket& bucket() { return bucket_; }

  // Whether the engine is told, or its handles alone.
  enum class Waiting : uint8_t { kHandles, kEngine };

  // All of the bucket is on its stream, and `event` is recorded behind it. Before this only the watch has the
  // completion. The last call of Launch and Withdraw, of which there is one.
  void Launch(std::unique_ptr<DeviceEvent> event, Waiting waiting, LaunchedBucket::Undecided undecided = {});

  // The times that the timeline will show; to be called before Launch, if at all.
  void set_timing(std::shared_ptr<BucketTiming> timing) { timing_ = std::move(timing); }
  // REQUIRES: settled. Of the watch.
  std::shared_ptr<BucketTiming> TakeTiming() { return std::move(timing_); }

  // No thread waits for the bucket: its vote was lost, or this rank has no part in it. It counts as done.
  void Withdraw();

  enum class Launching : uint8_t { kUnderWay, kDone, kWithdrawn };
  Launching launching() const { return launch_.load(std::memory_order_acquire); }

  // REQUIRES: launching() is over, or this is settled.
  Waiting waiting() const { return launching() == Launching::kDone ? waiting_ : Waiting::kHandles; }

  // Whether the operation is complete, or has failed.
  bool done();

  // Blocks until done. The device's error, or the job's failure.
  absl::Status Wait() {
    WaitUntil(absl::InfiniteDuration());
    return status_;
  }

  // The same until MonotonicTime() has come to `deadline`, if that is first. Whether it is done.
  bool WaitUntil(absl::Duration deadline);

  // REQUIRES: done.
  const absl::Status& status() const { return status_; }

  bool is_settled() const { return settled_.load(std::memory_order_acquire); }

  // LaunchedBucket::OrderBefore, for a bucket that may be settled. `tensor` is one of its tensors.
  // REQUIRES: launched.
  // Errors: the operation's, if it has failed, or that with which `tensor` was refused; INVALID_ARGUMENT if the stream
  // is being captured; the device's.
  absl::Status OrderBefore(WaitingStream& stream, absl::string_view tensor);

  // Has `callbacks` run once it is done, with its status and after those of earlier calls. False if it is done already:
  // nothing has happened.
  // REQUIRES: the callback thread has been started.
  bool Then(std::list<CallbackThread::Callback>* callbacks);

  // Only the first call has an effect.
  void Settle(absl::Status status);

 private:
  void SettleAs(absl::FunctionRef<absl::Status()> outcome);

  const Options options_;
  LaunchedBucket bucket_;
  Waiting waiting_ = Waiting::kHandles;
  std::shared_ptr<BucketTiming> timing_;
  std::atomic<Launching> launch_{Launching::kUnderWay};
  std::atomic<bool> settled_{false};
  Mutex mu_;
  CondVar changed_;
  std::list<CallbackThread::Callback> callbacks_ ABSL_GUARDED_BY(mu_);
  absl::Status status_;  // written before settled_ is true, read after
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_
