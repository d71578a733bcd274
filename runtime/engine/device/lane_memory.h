// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_LANE_MEMORY_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_LANE_MEMORY_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/device/offset_allocator.h"

namespace ronda {

// The device memory that all ranks of a lane, or of the job, have registered together (DirectMemory), divided into
// blocks for tensors. The offset of a block depends only on the sequence of Allocate() and Free() on this rank. All
// ranks must make these calls in the same order, because the tensors of a call must have the same offsets on all ranks.
// (For the job's memory, the ranks compare the offsets themselves: see AgreedPlaces.)
//
// Allocation follows the order of streams, as cudaMallocAsync does. Free() records a point on the stream that has used
// the block. The stream of a later Allocate() waits for this point, and no thread waits.
//
// The memory may outlive its owner. Then its blocks stay valid, but are not registered any more.
//
// Thread-safe.
class LaneMemory {
 public:
  struct Options {
    std::string owner;    // "lane 0" or "the job", for messages
    std::string setting;  // that has its size, and on which rank, for messages
    std::shared_ptr<Device> device;
    DirectMemory memory;
  };

  explicit LaneMemory(Options options);

  // Frees the memory when the device has passed the points of all freed blocks. If this takes longer than
  // Device::timeout(), never frees the memory: the trainer's work may go on. REQUIRES: no block is in use, and the
  // communicator has ended.
  ~LaneMemory();

  // Returns a block of at least `bytes` bytes, aligned to OffsetAllocator::kAlignment, for work on `stream`.
  // Errors: RESOURCE_EXHAUSTED with the sizes and the setting; FAILED_PRECONDITION after Close(); INVALID_ARGUMENT if
  // `stream` is being captured; INTERNAL for an error of the driver.
  absl::StatusOr<void*> Allocate(size_t bytes, StreamHandle stream);

  // Frees the block, which the work that is now on `stream` may still use. Works after Close(), too.
  // Errors: INVALID_ARGUMENT if no block begins at `block`, or if `stream` is being captured; INTERNAL for an error of
  // the driver. After an error about the stream the block is still in use.
  absl::Status Free(void* block, StreamHandle stream);

  // Returns the distance of `data` from the beginning of the memory; nullopt if `data` is outside.
  std::optional<size_t> OffsetOf(const void* data) const;

  size_t bytes() const { return options_.memory.bytes; }
  // The number of the device.
  int device() const { return options_.device->ordinal(); }

  // Must be called when the owner makes no more calls.
  void Close();

 private:
  // Makes `stream` wait for all points that the device has not passed.
  absl::Status OrderLocked(StreamHandle stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the points that the device has passed.
  absl::Status ForgetPointsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps the memory allocated until the process ends.
  void KeepLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RefusalLocked(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  bool is_closed_ ABSL_GUARDED_BY(mu_) = false;
  OffsetAllocator offsets_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<DeviceEvent>> points_ ABSL_GUARDED_BY(mu_);  // behind the work on freed blocks
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_LANE_MEMORY_H_
