#include "runtime/collectives/nccl/vote_values.h"

#include <cstdint>
#include <cstring>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The bits of 1 as a little-endian element, the lowest byte first.
uint64_t BitsOfOne(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x3c00;
    case DType::kBfloat16:
      return 0x3f80;
    case DType::kFloat32:
      return 0x3f800000;
    case DType::kFloat64:
      return 0x3ff0000000000000;
    default:
      return 1;
  }
}

}  // namespace

absl::StatusOr<VoteValues> VoteValues::Create(Device* device, StreamHandle stream) {
  constexpr size_t kAll = (1 + kDTypeCount) * kBytes;
  RONDA_ASSIGN_OR_RETURN(DeviceMemory source, device->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, kAll, "votes"));
  RONDA_ASSIGN_OR_RETURN(DeviceMemory memory, device->Allocate(RONDA_CUDA_DEVICE_MEMORY, kAll, "votes"));
  std::memset(source.data(), 0, kBytes);
  for (int i = 0; i < kDTypeCount; ++i) {
    const uint64_t bits = BitsOfOne(static_cast<DType>(i));
    std::memcpy(source.data() + (1 + static_cast<size_t>(i)) * kBytes, &bits, kBytes);
  }
  RONDA_RETURN_IF_ERROR(device->Call(
      "copying", [&](const ronda_cuda_plugin& cuda) { return cuda.copy(memory.data(), source.data(), kAll, stream); }));
  return VoteValues(std::move(source), std::move(memory));
}

}  // namespace ronda
