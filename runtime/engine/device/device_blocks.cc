// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_blocks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/engine/device/rank_device.h"

namespace ronda {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

// Rounds `bytes` up to the size of a block. There are eight block sizes per power of two, so at most an eighth of a
// block is wasted, except in the smallest blocks.
size_t BlockBytes(size_t bytes) {
  constexpr size_t kSmallest = 512;
  size_t step = kSmallest;
  while (step * 16 <= bytes) step *= 2;
  return std::max(kSmallest, (bytes + step - 1) / step * step);
}

}  // namespace

// If the device has an error, the block counts as usable, because the error will soon fail the job anyway.
bool DeviceBlocks::IsUsable(Idle& block) {
  RecordPoints(block.readers);
  std::erase_if(block.readers.points, [](const auto& point) { return point->done().value_or(true); });
  return block.readers.AreNoted() && block.readers.points.empty();
}

absl::StatusOr<ResultData> DeviceBlocks::Acquire(size_t bytes, absl::string_view purpose) {
  const size_t size = BlockBytes(bytes);
  {
    MutexLock lock(&mu_);
    std::vector<Idle>& idle = idle_[size];
    const auto found = std::find_if(idle.rbegin(), idle.rend(), [this](Idle& block) { return IsUsable(block); });
    if (found != idle.rend()) {
      DeviceMemory block = std::move(found->memory);
      idle.erase(std::next(found).base());
      idle_bytes_ -= size;
      return HandOutLocked(std::move(block));
    }
  }
  RONDA_ASSIGN_OR_RETURN(DeviceMemory block, Allocate(size, purpose));
  MutexLock lock(&mu_);
  return HandOutLocked(std::move(block));
}

absl::StatusOr<DeviceMemory> DeviceBlocks::Allocate(size_t bytes, absl::string_view purpose) {
  FreeStale();
  absl::StatusOr<DeviceMemory> block = device_->Allocate(kind_, bytes, purpose);
  if (block.ok() || !FreeIdle()) return block;
  return device_->Allocate(kind_, bytes, purpose);
}

void DeviceBlocks::FreeStale() {
  std::vector<Idle> stale;  // freed without the lock
  MutexLock lock(&mu_);
  const absl::Time now = clock_->Now();
  for (auto size = idle_.rbegin(); size != idle_.rend(); ++size) {
    std::vector<Idle>& blocks = size->second;
    auto end = blocks.begin();
    for (; end != blocks.end() && now - end->since >= kLong && idle_bytes_ + taken_bytes_ > most_taken_; ++end) {
      idle_bytes_ -= size->first;
    }
    std::move(blocks.begin(), end, std::back_inserter(stale));
    blocks.erase(blocks.begin(), end);
  }
}

bool DeviceBlocks::FreeIdle() {
  IdleBlocks idle;  // freed without the lock
  MutexLock lock(&mu_);
  idle.swap(idle_);
  return std::exchange(idle_bytes_, 0) > 0;
}

ResultData DeviceBlocks::HandOutLocked(DeviceMemory block) {
  const size_t size = block.size();
  std::byte* const data = block.data();
  taken_.emplace(data, Taken{.memory = std::move(block)});
  taken_bytes_ += size;
  most_taken_ = std::max(most_taken_, taken_bytes_);
  return ResultData(data, {.blocks = shared_from_this(), .bytes = size});
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> DeviceBlocks::RecordPoint(StreamHandle stream) {
  RONDA_RETURN_IF_ERROR(IdOfStream(*device_, stream, "give its memory back before or after the capture").status());
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, device_->NewEvent());
  RONDA_RETURN_IF_ERROR(event->Record(stream));
  return event;
}

// No event can be recorded on a stream that is being captured, or that the program has destroyed too early. As long as
// this is the case, the stream's block is not reused.
void DeviceBlocks::RecordPoints(Readers& readers) {
  std::erase_if(readers.streams, [&](StreamHandle stream) {
    absl::StatusOr<std::unique_ptr<DeviceEvent>> point = RecordPoint(stream);
    if (point.ok()) readers.points.push_back(*std::move(point));
    return point.ok();
  });
}

void DeviceBlocks::AddReader(const std::byte* data, StreamHandle stream) {
  MutexLock lock(&mu_);
  const auto found = taken_.find(data);
  if (found == taken_.end()) return;
  std::vector<StreamHandle>& streams = found->second.readers.streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

absl::Status DeviceBlocks::RecordLastRead(const std::byte* data, StreamHandle stream) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> point, RecordPoint(stream));
  MutexLock lock(&mu_);
  const auto found = taken_.find(data);
  if (found == taken_.end()) return absl::OkStatus();
  Readers& readers = found->second.readers;
  std::erase(readers.streams, stream);
  readers.points.push_back(std::move(point));
  return absl::OkStatus();
}

void DeviceBlocks::Release(std::byte* data, size_t bytes) {
  MutexLock lock(&mu_);
  const auto found = taken_.find(data);
  if (found == taken_.end()) return;
  Idle block = {
      .memory = std::move(found->second.memory), .since = clock_->Now(), .readers = std::move(found->second.readers)};
  taken_.erase(found);
  RecordPoints(block.readers);
  taken_bytes_ -= bytes;
  idle_[bytes].push_back(std::move(block));
  idle_bytes_ += bytes;
}

}  // namespace ronda
