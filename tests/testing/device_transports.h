#ifndef RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_

#include <vector>

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

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
