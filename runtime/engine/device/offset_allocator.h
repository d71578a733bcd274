// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_OFFSET_ALLOCATOR_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_OFFSET_ALLOCATOR_H_

#include <cstddef>
#include <map>
#include <optional>

namespace ronda {

// Divides a range of bytes into blocks, and remembers which blocks are in use. It knows only offsets and never touches
// the memory.
//
// A block gets the first gap that is large enough, and a freed block joins the gaps beside it. So the offsets depend
// only on the sequence of calls. Ranks that make the same calls in the same order get the same offsets.
//
// Thread-compatible.
class OffsetAllocator {
 public:
  // Blocks begin at multiples of this number, and sizes are rounded up to it. Each block has at least this size.
  // PyTorch expects such an alignment of its allocators.
  static constexpr size_t kAlignment = 512;

  // The part of `bytes` behind the last multiple of kAlignment is not used.
  explicit OffsetAllocator(size_t bytes);

  // Returns the offset of a new block; nullopt if no gap is large enough.
  std::optional<size_t> Allocate(size_t bytes);

  // Whether a block begins at `offset`.
  bool Contains(size_t offset) const { return blocks_.contains(offset); }

  // Frees the block at `offset`. Returns false if no block begins there.
  bool Free(size_t offset);

  // The bytes of all blocks, and of the largest gap.
  size_t used() const { return used_; }
  size_t largest_gap() const;

 private:
  using Ranges = std::map<size_t, size_t>;  // sizes, by offset

  Ranges blocks_;
  Ranges gaps_;  // two gaps never touch each other
  size_t used_ = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_OFFSET_ALLOCATOR_H_
