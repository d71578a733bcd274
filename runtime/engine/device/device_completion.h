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
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/progress_engine.h"

namespace ronda {

struct BucketTiming;

// How eagerly the device is asked: threads that wait for it say so.
//
// Thread-safe.
class Attention {
 public:
  void Begin() {
    if (waiting_.fetch_add(1) == 0) Ring();
  }
  void End() { waiting_.fetch_sub(1); }
  bool is_wanted() const { return waiting_.load() > 0; }

  // Ends a nap. Takes no note of one that is about to begin: naps are short.
  void Ring() {
    MutexLock lock(&mu_);
    rung_.NotifyAll();
  }
  // Sleeps for so long, or until Ring or the first Begin.
  void Nap(absl::Duration duration) {
    MutexLock lock(&mu_);
    rung_.WaitFor(&mu_, duration);
  }

 private:
  std::atomic<int> waiting_{0};
  Mutex mu_;
  CondVar rung_;
};

// The completion of a bucket on a device, from the moment at which the bucket is being given to it. Shared by the
// DeviceWatch, which settles it, and, once it is launched, by the bucket's handles.
//
// A bucket may be launched before the ranks have decided whether it is carried out: it has a vote, which the device
// counts. Streams that shall wait for it then wait for the vote's gate besides. If the vote is lost, the tensors of the
// bucket are carried out later, in other buckets, and this is launched once more, behind the last of them, where the
// gate is opened.
//
// Settled once: by the thread that first finds that the device has got there, or that the job has failed. A thread that
// only wants to know asks the device; one that waits sleeps until the watch has found out.
//
// Thread-safe. Memory ordering: status_ is written before settled_ becomes true with release, and not after that; so
// are event_, waiting_, number_ and timing_ before launch_ is other than kUnderWay, and again_ before relaunched_ is
// true.
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

  explicit DeviceCompletion(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }

  // Whether the engine is told, or its handles alone.
  enum class Waiting : uint8_t { kHandles, kEngine };

  // All of the bucket is on its stream, and `event` is recorded behind it. Before this only the watch has the
  // completion. The last call of Launch and Withdraw, of which there is one.
  //
  // `vote`: whether it is carried out is still to be decided; nullptr: it is. `number` is that of UndecidedBuckets.
  struct Undecided {
    std::shared_ptr<const OpenVote> vote;
    uint64_t number;
  };
  void Launch(std::unique_ptr<DeviceEvent> event, Waiting waiting, Undecided undecided = {});

  // The vote was lost. Now all tensors of the bucket have been carried out, in other buckets, and the gate has been
  // opened, both before `event`.
  void Relaunch(std::unique_ptr<DeviceEvent> event);

  // Whether the vote was lost, and the bucket has not been launched again.
  bool IsVetoed();

  // The bucket's vote; nullptr: there is none, or the bucket has been settled.
  std::shared_ptr<const OpenVote> vote();
  uint64_t number() const { return number_; }

  // After a veto: so many tensors are to be carried out again. Of the thread that does that, as NoteAgain, which says
  // whether this was the last of them.
  void ExpectAgain(size_t tensors) { again_left_ = tensors; }
  bool NoteAgain() { return --again_left_ == 0; }

  // After a veto: `tensor` will not be carried out; `status` names it. Whether some stream has been told to wait for
  // the bucket: its work then uses what is not there.
  bool Refuse(absl::string_view tensor, const absl::Status& status);

  // The device's error before the end of the bucket, which done() does not look for while the vote is open.
  absl::Status CheckDevice();

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

  // The error with which `tensor` was refused, or OK.
  absl::Status RefusalOf(absl::string_view tensor);

  bool is_settled() const { return settled_.load(std::memory_order_acquire); }

  // Makes the work that `stream` is given from now on wait for the operation; the caller does not wait, unless the vote
  // is open and the stream shares queues with Ronda's (plugin.h): waiting in such a queue it could hold up what it
  // waits for. A stream that waits already, for another tensor of the bucket, is left alone. REQUIRES: launched.
  // Errors: the operation's, if it has failed, or that with which `tensor` was refused; INVALID_ARGUMENT if the stream
  // is being captured; the device's.
  absl::Status OrderBefore(StreamHandle stream, absl::string_view tensor = {});

  // Has `callbacks` run once it is done, with its status and after those of earlier calls. False if it is done already:
  // nothing has happened.
  // REQUIRES: the callback thread has been started.
  bool Then(std::list<CallbackThread::Callback>* callbacks);

  // Only the first call has an effect.
  void Settle(absl::Status status);

 private:
  // What a stream has to wait for.
  struct Point {
    const DeviceEvent* event;
    std::shared_ptr<const OpenVote> vote;  // not nullptr: its gate, too
  };

  void SettleAs(absl::FunctionRef<absl::Status()> outcome);
  const DeviceEvent& event() const { return relaunched_.load(std::memory_order_acquire) ? *again_ : *event_; }
  absl::Status RefusalLocked(absl::string_view tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the vote is open or lost, and the bucket has not been launched again.
  bool IsUndecidedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Point PointLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status HaveWait(StreamHandle stream, const Point& point);
  // Blocks until the bucket is decided, or settled; then the caller looks again.
  void AwaitDecision();

  const Options options_;
  std::unique_ptr<DeviceEvent> event_;  // behind the bucket
  uint64_t number_ = 0;
  std::unique_ptr<DeviceEvent> again_;  // the same, when it has been launched again
  std::atomic<bool> relaunched_{false};
  size_t again_left_ = 0;
  Waiting waiting_ = Waiting::kHandles;
  std::shared_ptr<BucketTiming> timing_;
  std::atomic<Launching> launch_{Launching::kUnderWay};
  std::atomic<bool> settled_{false};
  Mutex mu_;
  CondVar changed_;
  std::list<CallbackThread::Callback> callbacks_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> waiting_streams_ ABSL_GUARDED_BY(mu_);  // their numbers; most often one
  bool is_awaited_ ABSL_GUARDED_BY(mu_) = false;                // by a stream, now or soon
  // Given back when the bucket is settled, so that the vote can be used again.
  std::shared_ptr<const OpenVote> vote_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, absl::Status>> refused_ ABSL_GUARDED_BY(mu_);  // by tensor
  absl::Status status_;  // written before settled_ is true, read after
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_COMPLETION_H_
