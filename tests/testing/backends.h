#ifndef RONDA_TESTS_TESTING_BACKENDS_H_
#define RONDA_TESTS_TESTING_BACKENDS_H_

#include <string>
#include <vector>

#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

// What can carry a job whose ranks are threads of one test.
enum class Backend {
  kSelf,  // one rank only
  kInProcess,
  kShm,                 // one mapping for all ranks, and slots so small that little data takes many chunks
  kShmSeparately,       // each rank maps the memory for itself, as processes do
  kHierarchical,        // several hosts: shared memory on each, messages across
  kMpi,                 // messages between all, with more or less delay, in small chunks
  kTcp,                 // the same over TCP
  kStaged,              // tensors of devices, through small slots of pinned memory, to kInProcess
  kNccl,                // tensors of devices, one a rank, through a fake NCCL
  kHierarchicalStaged,  // tensors of devices, on several hosts: a fake NCCL on each, kHierarchical's messages across
  kHierarchicalNccl,    // and a fake NCCL across
};

std::string Name(Backend backend);

// Whether it makes a difference between hosts, and so needs two.
bool HasHosts(Backend backend);

// Whether `backend` can be tested with `size` ranks in this build.
bool IsTestable(Backend backend, int size);

// On which hosts the ranks of a job of `size` are; none if the backend makes no difference between hosts.
HostMap HostsOf(Backend backend, int size);

struct BackendOptions {
  int size = 1;
};

// One transport a rank. Fails the test, and returns nothing, if they do not connect.
// REQUIRES: IsTestable(backend, options.size).
std::vector<Transport> ConnectRanks(Backend backend, const BackendOptions& options);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_BACKENDS_H_
