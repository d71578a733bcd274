#ifndef RONDA_RUNTIME_ENGINE_DEVICE_LAUNCHED_BUCKET_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_LAUNCHED_BUCKET_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/device/attention.h"
#include "runtime/engine/device/rank_device.h"

namespace ronda {

// A bucket as the device has it: the point behind its work, and the vote on it; and the streams that wait for both.
//
// A bucket may be launched before the ranks have decided whether it is carried out: it has a vote, which the device
// counts. Streams that shall wait for it then wait for the vote's gate besides. If the vote is lost, the tensors of the
// bucket are carried out later, in other buckets, and this is launched once more, behind the last of them, where the
// gate is opened.
//
// Thread-safe. Memory ordering: event_ and number_ are written by Launch, and the caller publishes that. again_ is
// written before relaunched_ is true with release.
class LaunchedBucket {
 public:
  // Not owned.
  struct Parts {
    Device* device;
    Attention* attention;  // may be nullptr
    StreamOrder* order;    // may be nullptr if no bucket has a vote
  };

  explicit LaunchedBucket(const Parts& parts) : parts_(parts) {}

  // Whether the bucket is carried out is still to be decided by `vote`; nullptr: it is. `number` is that of
  // UndecidedBuckets.
  struct Undecided {
    std::shared_ptr<const OpenVote> vote;
    uint64_t number;
  };
  // `event` is recorded behind the bucket. Called once, before all else but End, IsVetoed and vote.
  void Launch(std::unique_ptr<DeviceEvent> event, Undecided undecided);

  // The vote was lost. Now all tensors of the bucket have been carried out, in other buckets, and the gate has been
  // opened, both before `event`.
  void Relaunch(std::unique_ptr<DeviceEvent> event);

  // The bucket is settled: no thread or stream is to wait for its vote any more. If that is with a failure, opens the
  // gate. Called once.
  void End(const absl::Status& status);

  // Whether the vote was lost, and the bucket has not been launched again.
  bool IsVetoed();

  // The vote; nullptr: there is none, or the bucket has been settled.
  std::shared_ptr<const OpenVote> vote();
  uint64_t number() const { return number_; }

  // Whether the bucket is decided, and the device has come to its end.
  // Errors: the device's, which it does not look for while the vote is open.
  absl::StatusOr<bool> IsPassed();

  // The device's error before the end of the bucket, also while the vote is open.
  absl::Status CheckDevice();

  // After a veto: so many tensors are to be carried out again. Of the thread that does that, as NoteAgain, which says
  // whether this was the last of them.
  void ExpectAgain(size_t tensors) { again_left_ = tensors; }
  bool NoteAgain() { return --again_left_ == 0; }

  // After a veto: `tensor` will not be carried out; `status` names it. Whether some stream has been told to wait for
  // the bucket: its work then uses what is not there.
  bool Refuse(absl::string_view tensor, const absl::Status& status);

  // The error with which `tensor` was refused, or OK.
  absl::Status RefusalOf(absl::string_view tensor);

  // Makes the work that `stream`, whose number is `id`, is given from now on wait for the bucket; the caller does not
  // wait, unless the vote is open and the stream shares queues with Ronda's (plugin.h): waiting in such a queue it
  // could hold up what it waits for. A stream that waits already, for another tensor of the bucket, is left alone.
  // Errors: that of End, or with which `tensor` was refused; the device's.
  absl::Status OrderBefore(StreamHandle stream, uint64_t id, absl::string_view tensor);

 private:
  // What a stream has to wait for.
  struct Point {
    const DeviceEvent* event;
    std::shared_ptr<const OpenVote> vote;  // not nullptr: its gate, too
  };

  const DeviceEvent& event() const { return relaunched_.load(std::memory_order_acquire) ? *again_ : *event_; }
  absl::Status RefusalLocked(absl::string_view tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the vote is open or lost, and the bucket has not been launched again.
  bool IsUndecidedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status HaveWait(StreamHandle stream, uint64_t id, const Point& point);
  absl::StatusOr<bool> SharesQueues(StreamHandle stream, uint64_t id);
  // Blocks until the bucket is decided, or settled. Errors: that of End.
  absl::Status AwaitDecision();

  const Parts parts_;
  std::unique_ptr<DeviceEvent> event_;  // behind the bucket
  uint64_t number_ = 0;
  std::unique_ptr<DeviceEvent> again_;  // the same, when it has been launched again
  std::atomic<bool> relaunched_{false};
  size_t again_left_ = 0;
  Mutex mu_;
  CondVar changed_;
  bool has_ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);                   // with which it has ended
  std::vector<uint64_t> waiting_streams_ ABSL_GUARDED_BY(mu_);  // their numbers; most often one
  bool is_awaited_ ABSL_GUARDED_BY(mu_) = false;                // by a stream, now or soon
  // Given back when the bucket is settled, so that the vote can be used again.
  std::shared_ptr<const OpenVote> vote_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, absl::Status>> refused_ ABSL_GUARDED_BY(mu_);  // by tensor
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_LAUNCHED_BUCKET_H_
