// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/stream_buffer.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/nccl/nccl_memory.h"

namespace ronda {
namespace {

// Devices map memory in units of this size, so smaller buffers would save no memory, and growing is expensive.
constexpr size_t kUnitBytes = 2 << 20;

}  // namespace

StreamBuffer::~StreamBuffer() {
  for (Block& block : outgrown_) Free(block);
  for (auto& [entry, block] : windows_) Free(block);
  Free(block_);
}

absl::StatusOr<std::byte*> StreamBuffer::Get(size_t bytes) {
  RONDA_RETURN_IF_ERROR(Grow(block_, bytes, Growth::kIfPossible));
  return block_.data;
}

absl::StatusOr<std::byte*> StreamBuffer::GetFor(NcclGroups::Entry* entry, size_t bytes) {
  if (entry == nullptr) return Get(bytes);
  const bool is_window = options_.groups->UsesWindows(NcclUse::kBuffers);
  Block& block = is_window ? windows_[entry] : block_;
  RONDA_RETURN_IF_ERROR(Grow(block, bytes, is_window ? Growth::kAsPlanned : Growth::kIfPossible));
  RONDA_RETURN_IF_ERROR(options_.groups->Register(entry, block.data, block.size));
  return block.data;
}

absl::Status StreamBuffer::Grow(Block& block, size_t bytes, Growth growth) {
  if (bytes <= block.size && block.data != nullptr) return absl::OkStatus();
  absl::StatusOr<Block> larger = Allocate(std::max(bytes, std::min(2 * block.size, options_.most_bytes)));
  if (!larger.ok() && growth == Growth::kIfPossible)
    larger = Allocate(bytes);  // there may be enough memory for `bytes`
  RONDA_RETURN_IF_ERROR(larger.status());
  std::swap(block, *larger);
  if (larger->data != nullptr) outgrown_.push_back(*std::move(larger));
  return absl::OkStatus();
}

absl::StatusOr<StreamBuffer::Block> StreamBuffer::Allocate(size_t at_least) {
  const size_t bytes = (std::max<size_t>(at_least, 1) + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  Block block = {.size = bytes};
  if (!HasNcclMemory(*options_.nccl)) {
    RONDA_ASSIGN_OR_RETURN(block.memory, options_.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, options_.purpose));
    block.data = block.memory.data();
    return block;
  }
  RONDA_ASSIGN_OR_RETURN(block.data, AllocateNcclMemory(*options_.device, *options_.nccl, bytes, options_.purpose));
  return block;
}

void StreamBuffer::Free(Block& block) {
  if (block.data == nullptr) return;
  if (block.memory.size() > 0) {
    block.memory = DeviceMemory();
  } else {
    FreeNcclMemory(*options_.device, *options_.nccl, block.data);
  }
  block.data = nullptr;
}

}  // namespace ronda
