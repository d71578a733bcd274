#include "runtime/collectives/nccl/stream_buffer.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// What devices map at once: less than this saves nothing, and growing often costs.
constexpr size_t kUnitBytes = 2 << 20;

}  // namespace

StreamBuffer::~StreamBuffer() {
  for (Block& block : retired_) Free(block);
  Free(block_);
}

absl::StatusOr<std::byte*> StreamBuffer::Get(size_t bytes) {
  if (!retired_.empty()) FreeUnused();
  if (bytes <= block_.size && block_.data != nullptr) return block_.data;
  RONDA_RETURN_IF_ERROR(Retire());
  RONDA_ASSIGN_OR_RETURN(block_, Allocate((std::max<size_t>(bytes, 1) + kUnitBytes - 1) / kUnitBytes * kUnitBytes));
  return block_.data;
}

void StreamBuffer::RegisterFor(NcclGroups::Entry* entry) { options_.groups->Register(entry, block_.data, block_.size); }

absl::StatusOr<StreamBuffer::Block> StreamBuffer::Allocate(size_t bytes) {
  Block block = {.size = bytes};
  if (options_.nccl->MemAlloc != nullptr && options_.nccl->MemFree != nullptr) {
    void* memory = nullptr;
    NcclResult result = NcclResult::kSuccess;
    RONDA_RETURN_IF_ERROR(options_.device->Call("allocating", [&](const ronda_cuda_plugin&) {
      result = options_.nccl->MemAlloc(&memory, bytes);
      return 0;
    }));
    // Without virtual memory management, or much memory left, there may still be ordinary memory.
    if (result == NcclResult::kSuccess) {
      block.data = static_cast<std::byte*>(memory);
      return block;
    }
  }
  RONDA_ASSIGN_OR_RETURN(block.memory, options_.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, options_.purpose));
  block.data = block.memory.data();
  return block;
}

absl::Status StreamBuffer::Retire() {
  if (block_.data == nullptr) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(block_.last_use, options_.device->NewEvent());
  RONDA_RETURN_IF_ERROR(block_.last_use->Record(options_.stream));
  retired_.push_back(std::exchange(block_, {}));
  return absl::OkStatus();
}

void StreamBuffer::FreeUnused() {
  std::erase_if(retired_, [this](Block& block) {
    const absl::StatusOr<bool> is_passed = block.last_use->done();
    if (!is_passed.ok() || !*is_passed) return false;
    Free(block);
    return true;
  });
}

void StreamBuffer::Free(Block& block) {
  if (block.data == nullptr) return;
  options_.groups->Deregister(block.data);
  if (block.memory.size() > 0) {
    block.memory = DeviceMemory();
  } else {
    options_.device
        ->Call("freeing memory",
               [&](const ronda_cuda_plugin&) {
                 options_.nccl->MemFree(block.data);
                 return 0;
               })
        .IgnoreError();
  }
  block.data = nullptr;
}

}  // namespace ronda
