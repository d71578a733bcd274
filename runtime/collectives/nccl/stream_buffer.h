// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Device memory that successive calls reuse for their work on one stream. Grows to the largest size that a call needs,
// and never shrinks.
//
// When it grows, the old memory is kept until the destructor runs, because CUDA frees memory only after the device has
// finished all earlier work. That may be an NCCL kernel that waits for another rank, which in turn waits for this one.
// Each growth doubles the size, up to the expected maximum, so the old memory is smaller than the memory in use.
//
// The memory comes from NCCL's own allocator if the library has one, so that NCCL's transports can use it directly. The
// kind of memory must be the same on all ranks, because NCCL's choices depend on it. This is the case, because all
// ranks have the same library.
//
// If the memory becomes symmetric windows (NcclWindows), each communicator has memory of its own. All members must
// register a window in the same call, with the same size. So its growth must depend only on the communicator's calls,
// which are the same on all members.
//
// Thread-compatible. The objects in its options must outlive it.
class StreamBuffer {
 public:
  struct Options {
    Device* device = nullptr;
    StreamHandle stream = nullptr;
    const NcclFunctions* nccl = nullptr;
    NcclGroups* groups = nullptr;
    std::string purpose;  // "the fusion buffer", for messages
    // The expected maximum, beyond which the memory grows only if a call needs more.
    size_t most_bytes = std::numeric_limits<size_t>::max();
  };

  explicit StreamBuffer(Options options) : options_(std::move(options)) {}
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  // REQUIRES: the stream has finished, and the communicators that the memory was registered for have ended.
  ~StreamBuffer();

  // Returns at least `bytes` bytes, aligned to 256 bytes and with undefined contents, for work that is enqueued before
  // the next call. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::byte*> Get(size_t bytes);

  // Like Get(), but also registers the memory for the collectives of `entry`, which is nullptr for a group of one rank.
  // In each call, the memory that NCCL gets must be registered on all ranks or on none, so all memory that NCCL gets
  // from a StreamBuffer is registered. Errors: RESOURCE_EXHAUSTED; those of NcclGroups::Register().
  absl::StatusOr<std::byte*> GetFor(NcclGroups::Entry* entry, size_t bytes);

 private:
  struct Block {
    std::byte* data = nullptr;
    size_t size = 0;
    DeviceMemory memory;  // empty if `data` is from NCCL's allocator
  };

  // kIfPossible: the block may be smaller than planned if there is not enough memory.
  enum class Growth : uint8_t { kAsPlanned, kIfPossible };

  // Makes `block` at least as large as `bytes`.
  absl::Status Grow(Block& block, size_t bytes, Growth growth);
  absl::StatusOr<Block> Allocate(size_t at_least);
  void Free(Block& block);

  const Options options_;
  Block block_;                                        // not of windows
  std::map<const NcclGroups::Entry*, Block> windows_;  // by communicator
  std::vector<Block> outgrown_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_STREAM_BUFFER_H_
