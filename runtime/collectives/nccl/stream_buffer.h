#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Memory of a device that the work on one stream uses, call after call. It grows to the largest need and stays there.
//
// What was there before it grew is kept to the end. CUDA frees memory when the device has come to everything before,
// which may be a kernel of NCCL's, of any communicator in the process, that waits for a rank that waits for this one.
// It at least doubles each time, so that what is kept is less than what is used.
//
// NCCL's own allocator provides it where there is one, so that its transports can use the memory directly.
//
// Thread-compatible. What it is made of must outlive it.
class StreamBuffer {
 public:
  struct Options {
    Device* device = nullptr;
    StreamHandle stream = nullptr;
    const NcclFunctions* nccl = nullptr;
    NcclGroups* groups = nullptr;
    std::string purpose;  // "the fusion buffer", for messages
  };

  explicit StreamBuffer(Options options) : options_(std::move(options)) {}

  // All work on the stream has ended.
  ~StreamBuffer();

  // At least `bytes`, aligned to 256, for work that the stream is given before the next call. What they hold is
  // undefined.
  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::byte*> Get(size_t bytes);

  // What Get has given last, registered for the collectives of `entry`.
  void RegisterFor(NcclGroups::Entry* entry);

 private:
  struct Block {
    std::byte* data = nullptr;
    size_t size = 0;
    DeviceMemory memory;  // of size 0 if `data` is from NCCL's allocator
  };

  absl::StatusOr<Block> Allocate(size_t at_least);
  void Free(Block& block);

  const Options options_;
  Block block_;
  std::vector<Block> outgrown_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_
