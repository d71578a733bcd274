// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_BLOCKS_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_BLOCKS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/handle.h"

namespace ronda {

// Manages memory that a device can address, in reusable blocks. Allocating memory may wait for the device, and freeing
// it always does. For each size, DeviceBlocks keeps as many blocks as were ever in use at the same time. So a training
// step like earlier steps neither allocates nor frees memory. Idle memory is freed only when new memory is needed, in
// two cases. If DeviceBlocks has more memory than was ever in use at the same time, it frees blocks that have been idle
// for a minute. If the device has no memory left, it frees all idle blocks.
//
// Only work on the rank's single stream writes to the blocks. So the stream's work on a returned block ends before the
// next use of the block begins. Other streams that read a block must be registered (AddReader). The block is reused
// only after the device has done all work that was on these streams when the block was returned. No thread waits for
// this work. A stream that is not registered must have finished reading a block before the block is returned.
//
// Thread-safe. DeviceBlocks keeps the device alive.
class DeviceBlocks : public std::enable_shared_from_this<DeviceBlocks> {
 public:
  static std::shared_ptr<DeviceBlocks> Create(std::shared_ptr<Device> device, ronda_cuda_memory kind,
                                              const Clock* clock = Clock::Real()) {
    return std::shared_ptr<DeviceBlocks>(new DeviceBlocks(std::move(device), kind, clock));
  }

  // Returns a block. Errors: RESOURCE_EXHAUSTED, naming the purpose.
  absl::StatusOr<ResultData> Acquire(size_t bytes, absl::string_view purpose);

  // Declares that work on `stream` may read the block at `data` until the block is returned. The stream must live until
  // the block is returned.
  void AddReader(const std::byte* data, StreamHandle stream);

  // Declares that all of the work on `stream` that reads the block at `data` has now been enqueued.
  // Errors: INVALID_ARGUMENT if the stream is being captured; INTERNAL (the driver's error). After an error nothing has
  // changed.
  absl::Status RecordLastRead(const std::byte* data, StreamHandle stream);

  // Returns the memory of a result to this object.
  void Release(std::byte* data, size_t bytes);

 private:
  // The reads that must end before a block is used again.
  struct Readers {
    std::vector<StreamHandle> streams;                 // for all work that they have when the block comes back
    std::vector<std::unique_ptr<DeviceEvent>> points;  // behind the last reads on streams

    bool AreNoted() const { return streams.empty(); }
  };
  struct Taken {
    DeviceMemory memory;
    Readers readers;
  };
  struct Idle {
    DeviceMemory memory;
    absl::Time since;
    Readers readers;
  };
  using IdleBlocks = std::map<size_t, std::vector<Idle>>;  // by size; per size, the longest idle first

  DeviceBlocks(std::shared_ptr<Device> device, ronda_cuda_memory kind, const Clock* clock)
      : device_(std::move(device)), kind_(kind), clock_(clock) {}

  // Returns an event behind all work that is now on `stream`.
  absl::StatusOr<std::unique_ptr<DeviceEvent>> RecordPoint(StreamHandle stream);
  // Records an event on each stream that allows it, and replaces the stream with the event.
  void RecordPoints(Readers& readers);
  // Returns whether the block can be reused, because no stream reads it any more.
  bool IsUsable(Idle& block);

  ResultData HandOutLocked(DeviceMemory block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Allocate, FreeStale and FreeIdle may wait for the device, so a thread that returns a block must not call them.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view purpose) ABSL_LOCKS_EXCLUDED(mu_);
  // Frees blocks that have been idle for long, until no more memory is left than was ever in use at the same time.
  void FreeStale() ABSL_LOCKS_EXCLUDED(mu_);
  // Frees all idle blocks. Returns false if no block is idle.
  bool FreeIdle() ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<Device> device_;
  const ronda_cuda_memory kind_;
  const Clock* const clock_;
  Mutex mu_;
  IdleBlocks idle_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<const std::byte*, Taken> taken_ ABSL_GUARDED_BY(mu_);
  size_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t taken_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t most_taken_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_BLOCKS_H_
