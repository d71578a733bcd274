// SPDX-License-Identifier: Apache-2.0

// Device memory of NCCL's own allocator (ncclMemAlloc), which NCCL's transports can use directly.
#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_MEMORY_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_MEMORY_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Returns whether the library has an allocator, which it has from 2.19 on.
inline bool HasNcclMemory(const NcclFunctions& nccl) { return nccl.MemAlloc != nullptr && nccl.MemFree != nullptr; }

// Allocates memory. REQUIRES: HasNcclMemory(nccl).
// Errors: RESOURCE_EXHAUSTED with the size and `purpose` ("the fusion buffer").
absl::StatusOr<std::byte*> AllocateNcclMemory(Device& device, const NcclFunctions& nccl, size_t bytes,
                                              absl::string_view purpose);

// Frees the memory, unless the device has been abandoned. REQUIRES: the device no longer uses the memory, and the
// communicators that have registered it have ended.
void FreeNcclMemory(Device& device, const NcclFunctions& nccl, std::byte* memory);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_MEMORY_H_
