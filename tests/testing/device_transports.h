// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_

#include <cstdint>
#include <vector>

#include "runtime/backends/device_hierarchy.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

// This header connects jobs whose ranks are threads and whose tensors are on devices (OnDevice). The devices are fake,
// and code on the host cannot access their memory. If the environment variable kRealPlugin is set to the path of
// libronda_cuda.so, the devices are real.
inline constexpr char kRealPlugin[] = "RONDA_TEST_CUDA_PLUGIN";

// Returns whether there are devices. If there are none, prints the reason.
bool HasDevices();

// Ranks share devices. Tensors are copied through small slots of pinned memory, and travel as in InProcessWorld.
// REQUIRES: HasDevices().
std::vector<Transport> ConnectStagedTransports(int size);

// Ranks share devices. Tensors travel through small slots, and the devices map each other's memory. Fake devices have
// few queues. REQUIRES: HasDevices().
std::vector<Transport> ConnectPeerTransports(int size);

// The following functions are for jobs whose tensors travel through NCCL. Every rank is a thread of the test with its
// own device.

// Returns whether the machine has at least `size` devices, and an NCCL for them.
bool HasNcclDevices(int size);

// Returns one transport per rank. Each transport has an NcclCommunicator inside an OnDevice, and an in-process control
// plane. Real devices (kRealPlugin) use the real NCCL, and fake devices use the fake NCCL.
//
// REQUIRES: HasNcclDevices(size).
std::vector<Transport> ConnectNcclTransports(int size, SumOrder order = SumOrder::kOfNccl);

// The following function is for jobs on several hosts, with tensors on devices. Every rank is a thread of the test with
// its own device.

// Returns one transport per rank. Each transport has a two-level communicator for devices inside an OnDevice. CUDA and
// NCCL are fake. The rest of the transport comes from ConnectHierarchicalTransports.
std::vector<Transport> ConnectDeviceHierarchyTransports(const HostMap& map, DeviceHierarchyOptions::Across across,
                                                        uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
