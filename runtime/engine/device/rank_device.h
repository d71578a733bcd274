// SPDX-License-Identifier: Apache-2.0

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

// A point on a trainer's stream, at which the buffers of a submission are ready. Keeps the device.
//
// Thread-safe. If two threads record points on one stream at the same time, their order is unknown. So a point stores
// how many points had been recorded before it was begun, and before it was complete.
class ReadyPoint {
 public:
  // Records how far `stream` has come. `recorded` counts the points that are compared with each other.
  // Errors: INVALID_ARGUMENT if the stream is being captured; INTERNAL (the driver's).
  static absl::StatusOr<std::shared_ptr<const ReadyPoint>> Record(const std::shared_ptr<Device>& device,
                                                                  StreamHandle stream, std::atomic<uint64_t>* recorded);

  // Whether a stream that waits for this point need not wait for `other`.
  bool Covers(const ReadyPoint& other) const {
    return this == &other || (stream_id_ == other.stream_id_ && begun_ >= other.complete_);
  }

  // Makes the work that is put on `stream` from now on come after the point.
  absl::Status OrderBefore(StreamHandle stream) const { return event_->OrderBefore(stream); }

 private:
  ReadyPoint(std::shared_ptr<Device> device, uint64_t stream_id, uint64_t begun)
      : device_(std::move(device)), stream_id_(stream_id), begun_(begun) {}

  const std::shared_ptr<Device> device_;
  const uint64_t stream_id_;
  const uint64_t begun_;
  uint64_t complete_ = 0;
  std::unique_ptr<DeviceEvent> event_;
};

// The smallest set of points to wait for, which is the last point of each stream.
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

// Returns the number of the stream, unique in this process. A stream that is being captured into a graph is refused,
// because a graph cannot hold operations that the ranks still have to agree on; `otherwise` is the advice for that
// case.
// Errors: INVALID_ARGUMENT if the stream is being captured; INTERNAL (the driver's).
absl::StatusOr<uint64_t> IdOfStream(Device& device, StreamHandle stream, absl::string_view otherwise);

// A stream that a caller makes wait for many operations. The driver is asked for its number only once. The object lives
// for one call only: a stream that is created later may have the same handle, and a capture may begin at any time.
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

// The device of this rank, which never changes. It is the device of the rank's first tensor in the memory of a device.
//
// The driver is asked only once on which device a buffer is. If the buffer comes again, as it does in every training
// step, it is assumed to be on the same device. The buffer's memory may have been freed meanwhile, and may now belong
// to another device or to the host. Then the error comes from the device instead of from the submission.
//
// Thread-safe.
class RankDevice {
 public:
  // `hint`, modulo the number of devices, is the device for a rank that has no tensor on a device when other ranks
  // have. `support` may be nullptr. `timeout` is passed to the device.
  RankDevice(std::shared_ptr<DeviceSupport> support, int hint, absl::Duration timeout = Device::kTimeout)
      : support_(std::move(support)), hint_(hint), timeout_(timeout) {}

  using Ready = std::shared_ptr<const ReadyPoint>;

  // Checks where the buffers are, and records how far the submissions' streams have come. Returns one point per
  // submission, or nullptr for tensors of the host. The result is empty if all tensors are in the host's memory. In
  // this case the call costs nothing.
  //
  // Errors: INVALID_ARGUMENT (memory of the host, or of a device other than before; a stream whose work is being
  // captured into a graph), FAILED_PRECONDITION (no device), INTERNAL (the driver's). All name the tensor.
  absl::StatusOr<std::vector<Ready>> Admit(absl::Span<const Submission> submissions);

  // Lets the device set some of its memory to zero, after the work that `stream` has so far.
  // Errors: as Admit, but the text names no tensor.
  absl::Status FillZero(void* buffer, size_t bytes, StreamHandle stream);

  // Returns the device. If no tensor has determined the device yet, the local rank now does.
  // Errors: why no device can be used.
  absl::StatusOr<std::shared_ptr<Device>> Get();

  // Returns the device. If no tensor has determined the device yet, `buffer` does, or the local rank if `buffer` is
  // nullptr.
  // Errors: as Get; INVALID_ARGUMENT if the buffer is not in its memory.
  absl::StatusOr<std::shared_ptr<Device>> Of(const void* buffer) {
    return buffer == nullptr ? Get() : CheckBuffer(buffer);
  }

  // Returns the device; nullptr if it has not been determined.
  std::shared_ptr<const Device> chosen() const {
    const MutexLock lock(&mu_);
    return device_;
  }

 private:
  // Makes the device with this number this rank's.
  absl::StatusOr<std::shared_ptr<Device>> Open(const ronda_cuda_plugin& plugin, int ordinal);
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffers(const Submission& submission);
  // The device. Checks that `buffer` is in its memory.
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffer(const void* buffer);
  // Errors: why no plugin can be used.
  absl::StatusOr<const ronda_cuda_plugin*> Plugin();
  // Returns the device if the buffers were found there before; nullptr if the driver has to be asked.
  std::shared_ptr<Device> FindKnown(const Submission& submission);

  const std::shared_ptr<DeviceSupport> support_;
  const int hint_;
  const absl::Duration timeout_;
  std::atomic<uint64_t> points_recorded_{0};
  mutable Mutex mu_;
  std::shared_ptr<Device> device_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<const void*> known_ ABSL_GUARDED_BY(mu_);  // buffers on device_
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_
