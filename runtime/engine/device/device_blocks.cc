#include "runtime/engine/device/device_blocks.h"

#include <algorithm>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Eight sizes to each power of two: blocks serve tensors of about their size, and at most an eighth is wasted.
size_t BlockBytes(size_t bytes) {
  constexpr size_t kSmallest = 512;
  size_t step = kSmallest;
  while (step * 16 <= bytes) step *= 2;
  return std::max(kSmallest, (bytes + step - 1) / step * step);
}

}  // namespace

absl::StatusOr<ResultData> DeviceBlocks::Take(size_t bytes, absl::string_view purpose) {
  const size_t size = BlockBytes(bytes);
  {
    MutexLock lock(&mu_);
    const auto found = idle_.find(size);
    if (found != idle_.end() && !found->second.empty()) {
      DeviceMemory block = std::move(found->second.back());
      found->second.pop_back();
      idle_bytes_ -= size;
      return HandOutLocked(std::move(block));
    }
  }
  RONDA_ASSIGN_OR_RETURN(DeviceMemory block, Allocate(size, purpose));
  MutexLock lock(&mu_);
  return HandOutLocked(std::move(block));
}

absl::StatusOr<DeviceMemory> DeviceBlocks::Allocate(size_t bytes, absl::string_view purpose) {
  absl::StatusOr<DeviceMemory> block = device_->Allocate(kind_, bytes, purpose);
  if (block.ok() || !FreeIdle()) return block;
  return device_->Allocate(kind_, bytes, purpose);
}

bool DeviceBlocks::FreeIdle() {
  std::map<size_t, std::vector<DeviceMemory>> idle;  // freed without the lock
  MutexLock lock(&mu_);
  idle.swap(idle_);
  return std::exchange(idle_bytes_, 0) > 0;
}

ResultData DeviceBlocks::HandOutLocked(DeviceMemory block) {
  const size_t size = block.size();
  std::byte* const data = block.data();
  taken_.emplace(data, std::move(block));
  taken_bytes_ += size;
  most_taken_ = std::max(most_taken_, taken_bytes_);
  return ResultData(data, {.pool = shared_from_this(), .bytes = size});
}

void DeviceBlocks::Release(std::byte* data, size_t bytes) {
  DeviceMemory dropped;
  MutexLock lock(&mu_);
  const auto found = taken_.find(data);
  if (found == taken_.end()) return;
  taken_bytes_ -= bytes;
  // What was once in use at the same time may be again; more is not kept.
  if (idle_bytes_ + taken_bytes_ + bytes <= most_taken_) {
    idle_[bytes].push_back(std::move(found->second));
    idle_bytes_ += bytes;
  } else {
    dropped = std::move(found->second);
  }
  taken_.erase(found);
}

}  // namespace ronda
