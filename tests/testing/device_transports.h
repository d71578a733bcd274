#ifndef RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_

#include <vector>

#include "runtime/collectives/transport.h"

namespace ronda::testing {

// Jobs whose ranks are threads, and whose tensors travel between fake devices (OnDevice), two or more ranks on each. No
// code on the host can touch their memory.

// Through pinned memory, in small slots, and between the ranks as in InProcessWorld.
std::vector<Transport> ConnectStagedTransports(int size);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_DEVICE_TRANSPORTS_H_
