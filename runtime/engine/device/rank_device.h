#ifndef RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/submission.h"

namespace ronda {

// What is known of the order of the trainer's streams.
//
// Thread-safe.
class StreamOrder {
 public:
  // Some stream is about to be told to wait for the launched bucket of this number (UndecidedBuckets), which the ranks
  // may still have to decide. Called before the stream waits.
  void NoteWait(uint64_t number) {
    uint64_t last = last_awaited_.load();
    while (last < number && !last_awaited_.compare_exchange_weak(last, number)) {
    }
  }
  // The highest such number. Read after a point has been recorded, it is that of no bucket before which the point would
  // come: streams may have been made to wait for each other, so the point may be behind any of them.
  uint64_t last_awaited() const { return last_awaited_.load(); }

  // A stream that was found to have queues of its own; it keeps them. Of several, the last is known.
  void NoteOwnQueues(uint64_t stream_id) { has_own_queues_.store(stream_id, std::memory_order_relaxed); }
  bool HasOwnQueues(uint64_t stream_id) const { return has_own_queues_.load(std::memory_order_relaxed) == stream_id; }

  std::atomic<uint64_t>& noted() { return noted_; }

 private:
  static constexpr uint64_t kNoStream = ~uint64_t{0};

  std::atomic<uint64_t> last_awaited_{0};
  std::atomic<uint64_t> noted_{0};  // points
  std::atomic<uint64_t> has_own_queues_{kNoStream};
};

// A point on a stream of the trainer's, from which on a submission's buffers are ready. Keeps the device.
//
// Thread-safe. Two threads may note points on one stream at the same time, and then their order is unknown: so a point
// has the number of points that had been noted before it was begun, and before it was complete.
class ReadyPoint {
 public:
  // Notes how far `stream` has come. `order`: of all points that are compared.
  // Errors: INVALID_ARGUMENT if the stream is being captured; INTERNAL (the driver's).
  static absl::StatusOr<std::shared_ptr<const ReadyPoint>> Note(const std::shared_ptr<Device>& device,
                                                                StreamHandle stream, StreamOrder* order);

  // Whether a stream that waits for this need not wait for `other`.
  bool Covers(const ReadyPoint& other) const {
    return this == &other || (stream_id_ == other.stream_id_ && begun_ >= other.complete_);
  }

  // The highest number of a bucket that the point may be behind, which was undecided when it was noted; 0: none.
  uint64_t behind() const { return behind_; }

  // The work that `stream` is given from now on comes after the point.
  absl::Status OrderBefore(StreamHandle stream) const { return event_->OrderBefore(stream); }

 private:
  ReadyPoint(std::shared_ptr<Device> device, uint64_t stream_id, uint64_t begun)
      : device_(std::move(device)), stream_id_(stream_id), begun_(begun) {}

  const std::shared_ptr<Device> device_;
  const uint64_t stream_id_;
  const uint64_t begun_;
  uint64_t complete_ = 0;
  uint64_t behind_ = 0;
  std::unique_ptr<DeviceEvent> event_;
};

// The fewest of some points that have to be waited for: of each stream the last.
//
// Thread-compatible.
class LastPoints {
 public:
  void Clear() { points_.clear(); }
  void Add(const ReadyPoint* point);
  const std::vector<const ReadyPoint*>& points() const { return points_; }

 private:
  std::vector<const ReadyPoint*> points_;  // none covers another
};

// The number of the stream, which no other has in this process. `otherwise` is the advice if it is being captured
// into a graph, which cannot hold operations that the ranks still have to agree on.
// Errors: INVALID_ARGUMENT if it is; INTERNAL (the driver's).
absl::StatusOr<uint64_t> IdOfStream(Device& device, StreamHandle stream, absl::string_view otherwise);

// A stream that a caller has wait for many operations: the driver is asked for its number once. A handle alone does not
// tell it from one that is created later, and a capture may begin at any time; so it lives for the time of one call.
//
// Thread-compatible.
class WaitingStream {
 public:
  explicit WaitingStream(StreamHandle handle) : handle_(handle) {}

  StreamHandle handle() const { return handle_; }

  // Errors: as IdOfStream.
  absl::StatusOr<uint64_t> IdOn(Device& device);

 private:
  const StreamHandle handle_;
  std::optional<absl::StatusOr<uint64_t>> id_;
};

// The device of this rank: that of the first tensor in the memory of one; it stays the same.
//
// Where a buffer is the driver is asked once. It is taken to be there still when it comes again, as it does in every
// step of a training: memory that has been given back meanwhile, and come back as another device's or the host's, is
// an error of the device instead of one of the submission.
//
// Thread-safe.
class RankDevice {
 public:
  // `hint`, modulo the number of devices, is the device that a rank takes which has no such tensor when the others
  // have. `support` may be nullptr. `patience` becomes the device's.
  RankDevice(std::shared_ptr<DeviceSupport> support, int hint, absl::Duration patience = Device::kPatience)
      : support_(std::move(support)), hint_(hint), patience_(patience) {}

  using Ready = std::shared_ptr<const ReadyPoint>;

  // Checks where the buffers are, and notes on the submissions' streams how far they have come: one point a submission,
  // or a nullptr for tensors of the host. Empty if all are of the host, which costs nothing.
  //
  // Errors: INVALID_ARGUMENT (memory of the host, or of another device than before; a stream whose work is being
  // captured into a graph), FAILED_PRECONDITION (no device), INTERNAL (the driver's). All name the tensor.
  absl::StatusOr<std::vector<Ready>> Admit(absl::Span<const Submission> submissions);

  // Has the device set memory of its own to zero, after the work that `stream` has been given so far.
  // Errors: as of Admit, without a tensor's name.
  absl::Status FillZero(void* buffer, size_t bytes, StreamHandle stream);

  // The device. If there has been no tensor yet, now chosen by the local rank.
  // Errors: why there is none.
  absl::StatusOr<std::shared_ptr<Device>> Get();

  // The device, if it has been chosen; else nullptr.
  std::shared_ptr<const Device> chosen() const {
    const MutexLock lock(&mu_);
    return device_;
  }

  // Of the streams that have been and will be seen.
  const std::shared_ptr<StreamOrder>& order() const { return order_; }

 private:
  // The device of this number is to be this rank's.
  absl::StatusOr<std::shared_ptr<Device>> Take(const ronda_cuda_plugin& plugin, int ordinal);
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffers(const Submission& submission);
  // The device, of whose memory `buffer` has to be.
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffer(const void* buffer);
  // Errors: why there is none.
  absl::StatusOr<const ronda_cuda_plugin*> Plugin();
  // The same if it was found to be there before; nullptr: the driver has to be asked.
  std::shared_ptr<Device> FindKnown(const Submission& submission);

  const std::shared_ptr<DeviceSupport> support_;
  const int hint_;
  const absl::Duration patience_;
  const std::shared_ptr<StreamOrder> order_ = std::make_shared<StreamOrder>();
  mutable Mutex mu_;
  std::shared_ptr<Device> device_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<const void*> known_ ABSL_GUARDED_BY(mu_);  // buffers on it
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_
