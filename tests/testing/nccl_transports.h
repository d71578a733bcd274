// Jobs whose tensors travel through NCCL, inside one test: every rank is a thread with a device of its own.
#ifndef RONDA_TESTS_TESTING_NCCL_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_NCCL_TRANSPORTS_H_

#include <vector>

#include "runtime/collectives/transport.h"

namespace ronda::testing {

// One transport a rank: an NcclCommunicator over the fakes of NCCL and CUDA, which passes for one of host memory
// (on_device.h), and a control plane within the process.
std::vector<Transport> ConnectNcclTransports(int size);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_NCCL_TRANSPORTS_H_
