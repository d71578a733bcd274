// SPDX-License-Identifier: Apache-2.0

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

// A bucket on the device: the point behind its work, the vote on it, and the streams that wait for both.
//
// A bucket may be launched before the ranks have decided whether it is carried out. Then it has a vote, which the
// device counts, and streams that wait for the bucket also wait for the vote's gate. If the vote is lost, the tensors
// of the bucket are carried out later in other buckets. This bucket is launched again behind the last of them, where
// the gate is opened.
//
// Thread-safe. Memory ordering: Launch writes event_ and number_, and its caller publishes them. again_ is written
// before relaunched_ becomes true with release.
class LaunchedBucket {
 public:
  // Not owned.
  struct Parts {
    Device* device;
    Attention* attention;  // may be nullptr
    StreamOrder* order;    // may be nullptr if no bucket has a vote
  };

  explicit LaunchedBucket(const Parts& parts) : parts_(parts) {}

  // `vote` decides whether the bucket is carried out; nullptr: it is carried out. `number` is the number in
  // UndecidedBuckets.
  struct Undecided {
    std::shared_ptr<const OpenVote> vote;
    uint64_t number;
  };
  // `event` is recorded behind the bucket. Call once, before all other functions except End, IsVetoed and vote.
  void Launch(std::unique_ptr<DeviceEvent> event, Undecided undecided);

  // The vote was lost. Before `event`, all tensors of the bucket have been carried out in other buckets, and the gate
  // has been opened.
  void Relaunch(std::unique_ptr<DeviceEvent> event);

  // The bucket is settled: from now on no thread or stream may wait for its vote. If `status` is a failure, opens the
  // gate. Call once.
  void End(const absl::Status& status);

  // Whether the vote was lost and the bucket has not been launched again.
  bool IsVetoed();

  // The vote; nullptr if the bucket has none, or has been settled.
  std::shared_ptr<const OpenVote> vote();
  uint64_t number() const { return number_; }

  // Whether the bucket is decided and the device has finished it.
  // Errors: the device's, which it does not look for while the vote is open.
  absl::StatusOr<bool> IsPassed();

  // The device's error before the end of the bucket, even while the vote is open.
  absl::Status CheckDevice();

  // After a veto: `tensors` tensors must be carried out again. NoteAgain, called by the same thread for each of them,
  // returns whether this was the last.
  void ExpectAgain(size_t tensors) { again_left_ = tensors; }
  bool NoteAgain() { return --again_left_ == 0; }

  // After a veto: `tensor` will not be carried out; `status` names it. Returns whether some stream already waits for
  // the bucket: the work on that stream then uses a result that does not exist.
  bool Refuse(absl::string_view tensor, const absl::Status& status);

  // The error with which `tensor` was refused, or OK.
  absl::Status RefusalOf(absl::string_view tensor);

  // Makes the work that is put on `stream`, whose number is `id`, from now on wait for the bucket. The caller does not
  // wait, with one exception: the vote is open and the stream shares queues with Ronda's stream (plugin.h). If the
  // stream waited in such a queue, it could block what it waits for. Nothing is done if the stream already waits for
  // another tensor of the bucket.
  // Errors: the failure that End got; the error with which `tensor` was refused; the device's.
  absl::Status OrderBefore(StreamHandle stream, uint64_t id, absl::string_view tensor);

 private:
  // The things that a stream has to wait for.
  struct Point {
    const DeviceEvent* event;
    std::shared_ptr<const OpenVote> vote;  // not nullptr: also wait for its gate
  };

  const DeviceEvent& event() const { return relaunched_.load(std::memory_order_acquire) ? *again_ : *event_; }
  absl::Status RefusalLocked(absl::string_view tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the vote is open or lost, and the bucket has not been launched again.
  bool IsUndecidedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status HaveWait(StreamHandle stream, uint64_t id, const Point& point);
  absl::StatusOr<bool> SharesQueues(StreamHandle stream, uint64_t id);
  // Blocks until the bucket is decided or settled. Errors: the failure that End got.
  absl::Status AwaitDecision();

  const Parts parts_;
  std::unique_ptr<DeviceEvent> event_;  // behind the bucket
  uint64_t number_ = 0;
  std::unique_ptr<DeviceEvent> again_;  // behind its tensors when launched again
  std::atomic<bool> relaunched_{false};
  size_t again_left_ = 0;
  Mutex mu_;
  CondVar changed_;
  bool has_ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);                   // the failure that End got
  std::vector<uint64_t> waiting_streams_ ABSL_GUARDED_BY(mu_);  // their numbers; usually one
  bool is_awaited_ ABSL_GUARDED_BY(mu_) = false;                // whether a stream waits, or soon will
  // Released when the bucket is settled, so that the vote can be used again.
  std::shared_ptr<const OpenVote> vote_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, absl::Status>> refused_ ABSL_GUARDED_BY(mu_);  // by tensor
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_LAUNCHED_BUCKET_H_
