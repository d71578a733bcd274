// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/offset_allocator.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace ronda {

OffsetAllocator::OffsetAllocator(size_t bytes) {
  const size_t usable = bytes / kAlignment * kAlignment;
  if (usable > 0) gaps_.emplace(0, usable);
}

std::optional<size_t> OffsetAllocator::Allocate(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() - kAlignment) return std::nullopt;
  const size_t size = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [size](const auto& each) { return each.second >= size; });
  if (gap == gaps_.end()) return std::nullopt;
  const auto [offset, room] = *gap;
  gaps_.erase(gap);
  if (room > size) gaps_.emplace(offset + size, room - size);
  blocks_.emplace(offset, size);
  used_ += size;
  return offset;
}

bool OffsetAllocator::Free(size_t offset) {
  const auto block = blocks_.find(offset);
  if (block == blocks_.end()) return false;
  size_t size = block->second;
  used_ -= size;
  blocks_.erase(block);
  if (const auto next = gaps_.find(offset + size); next != gaps_.end()) {
    size += next->second;
    gaps_.erase(next);
  }
  const auto behind = gaps_.lower_bound(offset);
  if (behind != gaps_.begin()) {
    Ranges::value_type& before = *std::prev(behind);
    if (before.first + before.second == offset) {
      before.second += size;
      return true;
    }
  }
  gaps_.emplace(offset, size);
  return true;
}

size_t OffsetAllocator::largest_gap() const {
  size_t largest = 0;
  for (const auto& [offset, size] : gaps_) largest = std::max(largest, size);
  return largest;
}

}  // namespace ronda
