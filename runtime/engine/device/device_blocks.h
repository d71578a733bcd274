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

// Memory that a device can address, in blocks that are used again: allocating may wait for the device, and freeing
// does. So a step like those before does neither: of each size as many are kept as were ever in use at once. When new
// memory is needed, blocks that were not used for a minute are freed, as long as there is more than was ever in use
// at once; and all that are idle, if the device has no more.
//
// A block is written by work on the rank's one stream; so the stream's work on a block that is given back comes before.
// Streams that read it are named (NoteReader): the block is used again once the device has done all that they had been
// given when it came back. No thread waits for that. Work of streams that have not been named must be done by then.
//
// Thread-safe. Keeps the device.
class DeviceBlocks : public std::enable_shared_from_this<DeviceBlocks> {
 public:
  static std::shared_ptr<DeviceBlocks> Create(std::shared_ptr<Device> device, ronda_cuda_memory kind,
                                              const Clock* clock = Clock::Real()) {
    return std::shared_ptr<DeviceBlocks>(new DeviceBlocks(std::move(device), kind, clock));
  }

  // Errors: RESOURCE_EXHAUSTED that names the purpose.
  absl::StatusOr<ResultData> Take(size_t bytes, absl::string_view purpose);

  // `stream` is given work that reads the block at `data`, until the block comes back. It lives until then.
  void NoteReader(const std::byte* data, StreamHandle stream);

  // `stream` has been given all its work on the block at `data` by now.
  // Errors: INVALID_ARGUMENT if it is being captured; INTERNAL (the driver's). Nothing has changed then.
  absl::Status NoteLastRead(const std::byte* data, StreamHandle stream);

  // Takes memory of a result back.
  void Release(std::byte* data, size_t bytes);

 private:
  // What a block has to wait for before it is used again.
  struct Readers {
    std::vector<StreamHandle> streams;                 // for what they will have been given when the block comes back
    std::vector<std::unique_ptr<DeviceEvent>> points;  // behind what streams have been given

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
  using IdleBlocks = std::map<size_t, std::vector<Idle>>;  // by size; the first of each have been idle the longest

  DeviceBlocks(std::shared_ptr<Device> device, ronda_cuda_memory kind, const Clock* clock)
      : device_(std::move(device)), kind_(kind), clock_(clock) {}

  // A point behind all that `stream` has been given.
  absl::StatusOr<std::unique_ptr<DeviceEvent>> Note(StreamHandle stream);
  // Has points take the place of the streams, as far as these can be asked.
  void NoteAll(Readers& readers);
  // Whether no stream reads the block any more.
  bool IsUsable(Idle& block);

  ResultData HandOutLocked(DeviceMemory block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // These may wait for the device; threads that give blocks back must not have to.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view purpose) ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks that were not used for long, as long as there are more than were ever in use at once.
  void FreeStale() ABSL_LOCKS_EXCLUDED(mu_);
  // False: there are none.
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
