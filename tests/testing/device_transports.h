// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_

#include <cstdint>
#include <vector>

#include "runtime/backends/device_hierarchy.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

// Jobs whose ranks are threads, and whose tensors are on devices (OnDevice). Several ranks share a device. The devices
// are fake, and no code on the host can touch their memory. If the environment variable kRealPlugin has the path of
// libronda_cuda.so, the devices are real.
inline constexpr char kRealPlugin[] = "RONDA_TEST_CUDA_PLUGIN";

// Returns whether devices exist. If there are no devices, prints the reason.
bool HasDevices();

// Tensors are copied through small slots of pinned memory, and travel between the ranks as in InProcessWorld. REQUIRES:
// HasDevices().
std::vector<Transport> ConnectStagedTransports(int size);

// Tensors travel between devices that map each other's memory, through small slots. Ranks share devices, and fake
// devices have few queues. REQUIRES: HasDevices().
std::vector<Transport> ConnectPeerTransports(int size);

// The following functions are for jobs whose tensors travel through NCCL. Every rank is a thread of the test with its
// own device.

// Returns whether the machine has `size` devices, and an NCCL for them.
bool HasNcclDevices(int size);

// Returns one transport per rank. A transport has an NcclCommunicator behind the interface for host memory
// (on_device.h), and a control plane within the process. Real devices (kRealPlugin) use the real NCCL, and fake devices
// use the fake NCCL.
// REQUIRES: HasNcclDevices(size).
std::vector<Transport> ConnectNcclTransports(int size, SumOrder order = SumOrder::kOfNccl);

// The following function is for jobs on several hosts with tensors on devices. Every rank is a thread of the test with
// its own device.

// Returns one transport per rank. A transport has a communicator of two levels for devices, behind the interface for
// host memory (on_device.h). CUDA and NCCL are fake. ConnectHierarchicalTransports makes the transports in host memory.
std::vector<Transport> ConnectDeviceHierarchyTransports(const HostMap& map, DeviceHierarchyOptions::Across across,
                                                        uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
