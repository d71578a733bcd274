// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BACKENDS_DEVICE_HIERARCHY_H_
#define RONDA_RUNTIME_BACKENDS_DEVICE_HIERARCHY_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/collectives/nccl/nccl_arithmetic.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/transport.h"

namespace ronda {

// Options for sending tensors on devices in two levels: over NCCL between the ranks of a host, and as `across` says
// between hosts.
struct DeviceHierarchyOptions {
  DeviceSupport::Request request;  // must have levels
  std::shared_ptr<const NcclLibrary> library;
  // kStaged: between hosts, tensors travel through pinned memory and the host communicator. kNccl: over NCCL.
  enum class Across { kStaged, kNccl } across = Across::kStaged;
  SumOrder order = SumOrder::kOfNccl;
  NcclWindows windows = NcclWindows::kNone;
  size_t chunk_bytes = size_t{8} << 20;  // as in HierarchicalCommunicator
};

// Returns a HierarchicalCommunicator for a device. The level on the host uses the request's stream. With
// Across::kStaged, the level across hosts uses a stream of its own, and calls that cannot be done in two levels go
// through pinned memory and the job's host communicator. With Across::kNccl, the level across hosts also uses the
// request's stream, and those calls go over NCCL between all ranks.
//
// Errors: device errors; RESOURCE_EXHAUSTED.
absl::StatusOr<DeviceTransport> ConnectDeviceHierarchy(const DeviceHierarchyOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_DEVICE_HIERARCHY_H_
