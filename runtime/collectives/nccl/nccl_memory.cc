// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_memory.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {

absl::StatusOr<std::byte*> AllocateNcclMemory(Device& device, const NcclFunctions& nccl, size_t bytes,
                                              absl::string_view purpose) {
  void* memory = nullptr;
  NcclResult result = NcclResult::kSuccess;
  RONDA_RETURN_IF_ERROR(device.Call("allocating", [&](const ronda_cuda_plugin&) {
    result = nccl.MemAlloc(&memory, bytes);
    return 0;
  }));
  if (result == NcclResult::kSuccess) return static_cast<std::byte*>(memory);
  return absl::ResourceExhaustedError(
      absl::StrCat(device.name(), ": NCCL has no ", bytes, " bytes for ", purpose, ": ", nccl.GetErrorString(result)));
}

void FreeNcclMemory(Device& device, const NcclFunctions& nccl, std::byte* memory) {
  device.GiveBack("freeing memory", [&](const ronda_cuda_plugin&) {
    nccl.MemFree(memory);
    return 0;
  });
}

}  // namespace ronda
