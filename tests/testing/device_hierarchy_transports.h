// Jobs on several hosts whose tensors travel between devices, inside one test: every rank is a thread with a device of
// its own.
#ifndef RONDA_TESTS_TESTING_DEVICE_HIERARCHY_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_DEVICE_HIERARCHY_TRANSPORTS_H_

#include <cstdint>
#include <vector>

#include "runtime/bootstrap/device_hierarchy.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

// One transport a rank: two levels, over the fakes of NCCL and CUDA and ConnectHierarchicalTransports, which pass for a
// communicator of host memory (on_device.h).
std::vector<Transport> ConnectDeviceHierarchyTransports(const HostMap& map, DeviceHierarchyOptions::Across across,
                                                        uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_HIERARCHY_TRANSPORTS_H_
