// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_

#include <cstdint>
#include <vector>

#include "runtime/backends/device_hierarchy.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

// Jobs whose ranks are threads, and whose tensors travel between devices (OnDevice), several ranks per device. The
// devices are fake, and no code on the host can touch their memory. If this variable has the path of libronda_cuda.so,
// the devices are real.
inline constexpr char kRealPlugin[] = "RONDA_TEST_CUDA_PLUGIN";

// Returns whether devices exist. If none exist, prints the reason.
bool HasDevices();

// Tensors travel through pinned memory, in small slots, and between the ranks as in InProcessWorld. REQUIRES:
// HasDevices().
std::vector<Transport> ConnectStagedTransports(int size);

// Jobs whose tensors travel through NCCL, inside one test: every rank is a thread with its own device.

// Whether the machine has `size` devices, and an NCCL for them.
bool HasNcclDevices(int size);

// One transport per rank: an NcclCommunicator, which appears as a communicator of host memory (on_device.h), and a
// control plane within the process. Real devices (kRealPlugin) use the real NCCL, and fake devices a fake one.
// REQUIRES: HasNcclDevices(size).
std::vector<Transport> ConnectNcclTransports(int size, SumOrder order = SumOrder::kOfNccl);

// Jobs on several hosts whose tensors travel between devices, inside one test: every rank is a thread with its own
// device.

// One transport per rank: two levels, over the fakes of NCCL and CUDA and ConnectHierarchicalTransports. It appears as
// a communicator of host memory (on_device.h).
std::vector<Transport> ConnectDeviceHierarchyTransports(const HostMap& map, DeviceHierarchyOptions::Across across,
                                                        uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
