// Jobs on several hosts inside one test: every rank is a thread.
#ifndef RONDA_TESTS_TESTING_HIERARCHICAL_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_HIERARCHICAL_TRANSPORTS_H_

#include <cstdint>
#include <vector>

#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"

namespace ronda::testing {

// One transport a rank: shared memory between the ranks of a host, fake messages (fake_messages.h, with this seed)
// across hosts, and a control plane within the process.
std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_HIERARCHICAL_TRANSPORTS_H_
