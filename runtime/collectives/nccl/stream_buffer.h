// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Memory of a device that the work on one stream uses, call after call. It grows to the largest need and stays at that
// size.
//
// Outgrown memory is kept until the end. CUDA frees memory only after the device has done all earlier work. That work
// may be a kernel of any NCCL communicator in the process, and the kernel may wait for a rank that waits for this one.
// Each growth doubles the size, up to the expected maximum, so the outgrown memory is smaller than the memory in use.
//
// The memory comes from NCCL's own allocator if the library has one, so that NCCL's transports can use it directly. All
// ranks have the same library, and so the same kind of memory. They must, because NCCL's choices depend on the kind of
// memory.
//
// Thread-compatible. The objects of its options must outlive it.
class StreamBuffer {
 public:
  struct Options {
    Device* device = nullptr;
    StreamHandle stream = nullptr;
    const NcclFunctions* nccl = nullptr;
    NcclGroups* groups = nullptr;
    std::string purpose;  // "the fusion buffer", for messages
    // The expected maximum: memory grows beyond it only when it is needed.
    size_t most_bytes = std::numeric_limits<size_t>::max();
  };

  explicit StreamBuffer(Options options) : options_(std::move(options)) {}
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  // REQUIRES: all work on the stream has ended, and the communicators that the memory was registered for have ended.
  ~StreamBuffer();

  // Returns at least `bytes` bytes, aligned to 256, for work that is put on the stream before the next call. Their
  // contents are undefined. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::byte*> Get(size_t bytes);

  // Works like Get, and registers the memory for the collectives of `entry`. `entry` is nullptr for a group of one
  // rank. Memory that NCCL gets from a StreamBuffer is always registered, on every rank. NCCL must not get registered
  // memory on some ranks and other memory on other ranks. Errors: also the errors of NcclGroups::Register.
  absl::StatusOr<std::byte*> GetFor(NcclGroups::Entry* entry, size_t bytes);

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
