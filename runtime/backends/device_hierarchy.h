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

// The options for sending tensors on devices in two levels. Between the ranks of a host the tensors travel over NCCL.
// `across` decides how they travel between hosts.
struct DeviceHierarchyOptions {
  DeviceSupport::Request request;  // must have levels
  std::shared_ptr<const NcclLibrary> library;
  // kStaged: between hosts, tensors travel through pinned memory and the hosts' communicator. kNccl: between hosts,
  // tensors travel over NCCL.
  enum class Across { kStaged, kNccl } across = Across::kStaged;
  SumOrder order = SumOrder::kOfNccl;
  NcclWindows windows = NcclWindows::kNone;
  size_t chunk_bytes = size_t{8} << 20;  // as in HierarchicalCommunicator
};

// Returns a HierarchicalCommunicator of a device. The level on the host works on the request's stream. With
// Across::kStaged, the level across hosts works on its own stream. With Across::kNccl, the level across hosts also
// works on the request's stream. With Across::kStaged, calls that cannot be done in two levels go over the host's
// communicator of the job. With Across::kNccl, these calls go over NCCL between all ranks.
//
// Errors: the device's errors; RESOURCE_EXHAUSTED.
absl::StatusOr<DeviceTransport> ConnectDeviceHierarchy(const DeviceHierarchyOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_DEVICE_HIERARCHY_H_
