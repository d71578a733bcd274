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

// A point on a trainer's stream, after which the buffers of a submission are ready. The point keeps the device alive.
//
// Thread-safe. If two threads record points on one stream at the same time, the order of the points is unknown. So each
// point stores how many points had been recorded when its recording began, and how many when it was complete.
class ReadyPoint {
 public:
  // Records a point behind all work that is on `stream` now. `recorded` counts the recorded points, and only points
  // with the same counter may be compared.
  // Errors: INVALID_ARGUMENT if the stream is being captured; INTERNAL for an error of the driver.
  static absl::StatusOr<std::shared_ptr<const ReadyPoint>> Record(const std::shared_ptr<Device>& device,
                                                                  StreamHandle stream, std::atomic<uint64_t>* recorded);
  // Like Record, for a stream that has the number `id` and is not being captured.
  static absl::StatusOr<std::shared_ptr<const ReadyPoint>> RecordOn(const std::shared_ptr<Device>& device,
                                                                    StreamHandle stream, uint64_t id,
                                                                    std::atomic<uint64_t>* recorded);

  // Whether `other` is on the same stream and not later than this point, so that no stream has to wait for `other` as
  // well.
  bool Covers(const ReadyPoint& other) const {
    return this == &other || (stream_id_ == other.stream_id_ && begun_ >= other.complete_);
  }

  // Makes all later work on `stream` wait for the point.
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

// Collects points, and keeps only the last point of each stream. A stream that waits for the kept points waits for all
// collected points.
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

// Returns the stream's number, which is unique in this process. Refuses a stream that is being captured into a graph,
// because a graph cannot contain operations on which the ranks have not agreed yet. The error then contains the advice
// `otherwise`.
// Errors: INVALID_ARGUMENT if the stream is being captured; INTERNAL for an error of the driver.
absl::StatusOr<uint64_t> IdOfStream(Device& device, StreamHandle stream, absl::string_view otherwise);

// Returns the number of the stream; nullopt if the stream is being captured, or may not be used during the capture of
// another stream.
// Errors: INTERNAL for an error of the driver.
absl::StatusOr<std::optional<uint64_t>> FindIdOfStream(Device& device, StreamHandle stream);

// A stream that a caller makes wait for many operations. Queries the driver for the stream's number only once. Make a
// new WaitingStream for each call of the caller: a later stream may have the same handle, and a stream may begin to be
// captured between two calls.
//
// Thread-compatible.
class WaitingStream {
 public:
  explicit WaitingStream(StreamHandle handle) : handle_(handle) {}

  StreamHandle handle() const { return handle_; }

  // Returns the stream's number. Errors: as IdOfStream.
  absl::StatusOr<uint64_t> IdOn(Device& device);

 private:
  const StreamHandle handle_;
  std::optional<absl::StatusOr<uint64_t>> id_;
};

// Determines the device of this rank, which never changes. It is the device of the rank's first tensor in device
// memory.
//
// RankDevice asks the driver only once which device a buffer is on. If the program submits the buffer again, as in
// every training step, RankDevice assumes that the buffer is still there. But the program may have freed the memory,
// which may now belong to another device or to the host. In that case the device reports the error, not the submission.
//
// Thread-safe.
class RankDevice {
 public:
  // If other ranks have tensors on a device but this rank has none, it uses device number `hint` modulo the number of
  // devices. `support` may be nullptr. `timeout` is passed to the device.
  RankDevice(std::shared_ptr<DeviceSupport> support, int hint, absl::Duration timeout = Device::kTimeout)
      : support_(std::move(support)), hint_(hint), timeout_(timeout) {}

  using Ready = std::shared_ptr<const ReadyPoint>;

  // Checks in which memory the buffers are, and records a point on the stream of each submission. Returns one point per
  // submission, or nullptr for a tensor in host memory. If all tensors are in host memory, the result is empty, and the
  // call takes almost no time.
  //
  // Errors: INVALID_ARGUMENT if a buffer is in host memory or on another device than before, or if a stream is being
  // captured into a graph; FAILED_PRECONDITION if there is no device; INTERNAL for an error of the driver. All errors
  // name the tensor.
  absl::StatusOr<std::vector<Ready>> Admit(absl::Span<const Submission> submissions);

  // Like Admit, for one call of a lane with these buffers and this stream. Returns nullptr if the stream is being
  // captured. Errors: as Admit, but the text names no tensor.
  absl::StatusOr<Ready> AdmitCall(absl::Span<const void* const> buffers, StreamHandle stream);

  // Makes the device zero `bytes` at `buffer`, after the work that is now on `stream`.
  // Errors: as Admit, but the text names no tensor.
  absl::Status FillZero(void* buffer, size_t bytes, StreamHandle stream);

  // Returns the rank's device. If no tensor has determined the device yet, the constructor's `hint` determines it.
  // Errors: the reason why no device can be used.
  absl::StatusOr<std::shared_ptr<Device>> Get();

  // Returns the rank's device. If no tensor has determined the device yet, `buffer` determines it now, or `hint` if
  // `buffer` is nullptr.
  // Errors: as Get; INVALID_ARGUMENT if `buffer` is not in the device's memory.
  absl::StatusOr<std::shared_ptr<Device>> Of(const void* buffer) {
    return buffer == nullptr ? Get() : CheckBuffer(buffer);
  }

  // Keeps `memory` as long as this object exists, because the device may use it at any time.
  void Keep(DeviceMemory memory) {
    const MutexLock lock(&mu_);
    kept_.push_back(std::move(memory));
  }

  // Returns the device; nullptr if it has not been determined.
  std::shared_ptr<const Device> chosen() const {
    const MutexLock lock(&mu_);
    return device_;
  }

 private:
  // Opens the device with the number `ordinal`, and makes it the device of this rank.
  absl::StatusOr<std::shared_ptr<Device>> Open(const ronda_cuda_plugin& plugin, int ordinal);
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffers(const Submission& submission);
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffers(absl::Span<const void* const> buffers);
  // Returns the rank's device, and checks that `buffer` is in this device's memory.
  absl::StatusOr<std::shared_ptr<Device>> CheckBuffer(const void* buffer);
  // Errors: the reason why no plugin can be used.
  absl::StatusOr<const ronda_cuda_plugin*> Plugin();
  // Returns the device if the buffers are known to be on it; nullptr if the driver must be asked, or if there are no
  // buffers.
  std::shared_ptr<Device> FindKnown(absl::Span<const void* const> buffers);

  const std::shared_ptr<DeviceSupport> support_;
  const int hint_;
  const absl::Duration timeout_;
  std::atomic<uint64_t> points_recorded_{0};
  mutable Mutex mu_;
  std::shared_ptr<Device> device_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<const void*> known_ ABSL_GUARDED_BY(mu_);  // buffers on device_
  std::vector<DeviceMemory> kept_ ABSL_GUARDED_BY(mu_);         // of device_
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_RANK_DEVICE_H_
