#ifndef RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_

#include <cstdint>
#include <vector>

#include "runtime/backends/device_hierarchy.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

// Jobs whose ranks are threads, and whose tensors travel between devices (OnDevice), several ranks on each. The devices
// are fake, and no code on the host can touch their memory; or, if this variable has the path of libronda_cuda.so,
// real.
inline constexpr char kRealPlugin[] = "RONDA_TEST_CUDA_PLUGIN";

// Whether there are devices; if there are none, prints why.
bool HasDevices();

// Through pinned memory, in small slots, and between the ranks as in InProcessWorld.
// REQUIRES: HasDevices().
std::vector<Transport> ConnectStagedTransports(int size);

// Jobs whose tensors travel through NCCL, inside one test: every rank is a thread with a device of its own.

// Whether there are as many devices, and an NCCL for them.
bool HasNcclDevices(int size);

// One transport a rank: an NcclCommunicator, which passes for one of host memory (on_device.h), and a control plane
// within the process. Real devices (kRealPlugin) have the real NCCL, and fake ones a fake.
// REQUIRES: HasNcclDevices(size).
std::vector<Transport> ConnectNcclTransports(int size, SumOrder order = SumOrder::kOfNccl);

// Jobs on several hosts whose tensors travel between devices, inside one test: every rank is a thread with a device of
// its own.

// One transport a rank: two levels, over the fakes of NCCL and CUDA and ConnectHierarchicalTransports, which pass for a
// communicator of host memory (on_device.h).
std::vector<Transport> ConnectDeviceHierarchyTransports(const HostMap& map, DeviceHierarchyOptions::Across across,
                                                        uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
