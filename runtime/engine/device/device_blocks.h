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

// Memory that a device can address, in blocks that are used again. Allocating memory may wait for the device, and
// freeing it does wait. A step that is like earlier ones does neither, because for each size as many blocks are kept as
// were ever in use at once. When new memory is needed, idle memory is freed in two cases. If there is more memory than
// was ever in use at once, blocks that were not used for a minute are freed. If the device has no memory left, all idle
// blocks are freed.
//
// Only work on the rank's one stream writes the blocks. So that stream's work on a returned block comes before the next
// use of the block. Other streams that read a block are recorded (AddReader). The block is used again after the device
// has done all work that these streams had when the block came back. No thread waits for this work. Streams that are
// not recorded must have ended their work on a block before it comes back.
//
// Thread-safe. Keeps the device.
class DeviceBlocks : public std::enable_shared_from_this<DeviceBlocks> {
 public:
  static std::shared_ptr<DeviceBlocks> Create(std::shared_ptr<Device> device, ronda_cuda_memory kind,
                                              const Clock* clock = Clock::Real()) {
    return std::shared_ptr<DeviceBlocks>(new DeviceBlocks(std::move(device), kind, clock));
  }

  // Errors: RESOURCE_EXHAUSTED that names the purpose.
  absl::StatusOr<ResultData> Acquire(size_t bytes, absl::string_view purpose);

  // Declares that `stream` may get work that reads the block at `data`, until the block is returned. The stream must
  // live until then.
  void AddReader(const std::byte* data, StreamHandle stream);

  // Declares that `stream` has got all its work on the block at `data`.
  // Errors: INVALID_ARGUMENT if the stream is being captured; INTERNAL (the driver's error). After an error nothing has
  // changed.
  absl::Status RecordLastRead(const std::byte* data, StreamHandle stream);

  // Takes back the memory of a result.
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

  // Returns an event after all work that `stream` has.
  absl::StatusOr<std::unique_ptr<DeviceEvent>> RecordPoint(StreamHandle stream);
  // Replaces streams by points behind their work, for all streams that can be asked.
  void RecordPoints(Readers& readers);
  // Whether no stream reads the block any more.
  bool IsUsable(Idle& block);

  ResultData HandOutLocked(DeviceMemory block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Allocate, FreeStale and FreeIdle may wait for the device; threads that give blocks back must not.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view purpose) ABSL_LOCKS_EXCLUDED(mu_);
  // Frees blocks that were not used for long, while there is more memory than was ever in use at once.
  void FreeStale() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns false if no block is idle.
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
