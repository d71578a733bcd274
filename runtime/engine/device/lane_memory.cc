// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/lane_memory.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/rank_device.h"

namespace ronda {
namespace {

constexpr absl::Duration kPollInterval = absl::Microseconds(100);

constexpr char kBesideCapture[] = "do so before or after the capture";

}  // namespace

LaneMemory::LaneMemory(Options options) : options_(std::move(options)), offsets_(options_.memory.bytes) {}

LaneMemory::~LaneMemory() {
  const MutexLock lock(&mu_);
  Device& device = *options_.device;
  const absl::Duration begin = MonotonicTime();
  // If the driver reports an error, the device does no more work.
  while (!device.is_abandoned() && ForgetPointsLocked().ok() && !points_.empty()) {
    if (MonotonicTime() - begin > device.timeout()) {
      KeepLocked();
      break;
    }
    absl::SleepFor(kPollInterval);
  }
}

void LaneMemory::KeepLocked() const {
  static Mutex mu;
  static auto* const kept = new std::vector<std::shared_ptr<std::byte>>();
  const Device& device = *options_.device;
  Log(LogLevel::kWarning, -1,
      absl::StrCat(device.name(), ": work on the memory of ", options_.owner, " has not ended within ",
                   absl::FormatDuration(device.timeout()), ", so these ", options_.memory.bytes,
                   " bytes stay allocated until the process ends: wait for the streams before ", options_.owner,
                   " ends"));
  const MutexLock lock(&mu);
  kept->push_back(options_.memory.data);
}

absl::StatusOr<void*> LaneMemory::Allocate(size_t bytes, StreamHandle stream) {
  const Device::Current current(options_.device.get());
  const MutexLock lock(&mu_);
  if (is_closed_) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.owner, " has ended, and its memory takes no more tensors"));
  }
  RONDA_RETURN_IF_ERROR(IdOfStream(*options_.device, stream, kBesideCapture).status());
  const std::optional<size_t> offset = offsets_.Allocate(bytes);
  if (!offset.has_value()) return RefusalLocked(bytes);
  if (const absl::Status status = OrderLocked(stream); !status.ok()) {
    offsets_.Free(*offset);
    return status;
  }
  return options_.memory.data.get() + *offset;
}

absl::Status LaneMemory::RefusalLocked(size_t bytes) const {
  return absl::ResourceExhaustedError(absl::StrCat("no room for ", bytes, " bytes in the memory of ", options_.owner,
                                                   ", which has ", options_.memory.bytes, " bytes (", options_.setting,
                                                   "): ", offsets_.used(), " are in use, and the largest gap has ",
                                                   offsets_.largest_gap(), ": raise the setting, or free tensors"));
}

absl::Status LaneMemory::Free(void* block, StreamHandle stream) {
  const Device::Current current(options_.device.get());
  const MutexLock lock(&mu_);
  const std::optional<size_t> offset = OffsetOf(block);
  if (!offset.has_value() || !offsets_.Contains(*offset)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no block of the memory of ", options_.owner, " begins at this address"));
  }
  if (options_.device->is_abandoned()) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(IdOfStream(*options_.device, stream, kBesideCapture).status());
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> point, options_.device->NewEvent());
  RONDA_RETURN_IF_ERROR(point->Record(stream));
  RONDA_RETURN_IF_ERROR(ForgetPointsLocked());
  points_.push_back(std::move(point));
  offsets_.Free(*offset);
  return absl::OkStatus();
}

std::optional<size_t> LaneMemory::OffsetOf(const void* data) const {
  const auto begin = reinterpret_cast<uintptr_t>(options_.memory.data.get());
  const auto at = reinterpret_cast<uintptr_t>(data);
  if (at < begin || at - begin >= options_.memory.bytes) return std::nullopt;
  return at - begin;
}

void LaneMemory::Close() {
  const MutexLock lock(&mu_);
  is_closed_ = true;
}

absl::Status LaneMemory::OrderLocked(StreamHandle stream) {
  RONDA_RETURN_IF_ERROR(ForgetPointsLocked());
  for (const std::unique_ptr<DeviceEvent>& point : points_) RONDA_RETURN_IF_ERROR(point->OrderBefore(stream));
  return absl::OkStatus();
}

absl::Status LaneMemory::ForgetPointsLocked() {
  absl::Status failure;
  std::erase_if(points_, [&](const std::unique_ptr<DeviceEvent>& point) {
    const absl::StatusOr<bool> is_done = point->done();
    failure.Update(is_done.status());
    return is_done.ok() && *is_done;
  });
  return failure;
}

}  // namespace ronda
