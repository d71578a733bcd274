// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/hierarchical/level_ops.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/calls.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using kernels::cuda::UnpackCall;
using kernels::cuda::UnpackSegment;

// The granularity in which devices map memory.
constexpr size_t kUnitBytes = 2 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLevelOps>> DeviceLevelOps::Create(Options options) {
  Device* const device = options.device.get();
  std::unique_ptr<DeviceStream> across;
  if (options.across == Options::AcrossStream::kOwn) {
    RONDA_ASSIGN_OR_RETURN(across, DeviceStream::Create(device));
  }
  std::unique_ptr<DeviceLevelOps> ops(new DeviceLevelOps(std::move(options), std::move(across)));
  for (Slot& slot : ops->slots_) {
    RONDA_ASSIGN_OR_RETURN(slot.handed_over, device->NewEvent());
    RONDA_ASSIGN_OR_RETURN(slot.crossed, device->NewEvent());
  }
  return ops;
}

// Copies all pieces with one kernel launch, whatever the number of tensors.
absl::Status DeviceLevelOps::Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) {
  std::vector<UnpackSegment> segments;
  segments.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    segments.push_back({.output = piece.to, .count = piece.count, .offset = piece.offset});
  }
  const UnpackCall call = {.segments = segments.data(),
                           .segment_count = static_cast<int>(segments.size()),
                           .dtype = dtype,
                           .wire = {.dtype = dtype},
                           .buffer = gathered};
  return Marked(options_.marks, StreamPhase::kUnpack,
                options_.device->Call("distributing gathered data", [&](const ronda_cuda_plugin& cuda) {
                  return cuda.unpack(&call, options_.stream);
                }));
}

absl::Status DeviceLevelOps::Across(size_t slot, absl::FunctionRef<absl::Status()> work) {
  RONDA_RETURN_IF_ERROR(slots_[slot].handed_over->OrderBefore(across_stream()));
  RONDA_RETURN_IF_ERROR(work());
  return slots_[slot].crossed->Record(across_stream());
}

absl::StatusOr<char*> DeviceLevelOps::AtLeast(size_t bytes, DeviceMemory& memory, absl::string_view purpose) {
  if (memory.data() == nullptr || memory.size() < bytes) {
    const size_t units = (std::max({bytes, 2 * memory.size(), size_t{1}}) + kUnitBytes - 1) / kUnitBytes;
    RONDA_ASSIGN_OR_RETURN(DeviceMemory larger,
                           options_.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, units * kUnitBytes, purpose));
    outgrown_.push_back(std::exchange(memory, std::move(larger)));
  }
  return reinterpret_cast<char*>(memory.data());
}

absl::Status HostLevelOps::Scatter(const char* gathered, DType dtype, absl::Span<const Piece> pieces) {
  for (const Piece& piece : pieces) std::memcpy(piece.to, gathered + piece.offset, piece.count * SizeOf(dtype));
  return absl::OkStatus();
}

char* HostLevelOps::AtLeast(size_t bytes, std::vector<char>& memory) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

}  // namespace ronda
