// Messages between ranks that are threads of a test.
#ifndef RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collectives/host_map.h"
#include "runtime/collectives/messages/point_to_point.h"
#include "runtime/collectives/transport.h"
#include "runtime/tcp/tcp_listener.h"
#include "runtime/tcp/tcp_mesh.h"

namespace ronda::testing {

// The ends of `size` ranks, as strict about buffers as an MPI may be: each rank's memory is touched by that rank's own
// calls only; some messages are read at once, others, by the numbers that follow from `seed`, only when they have been
// asked for and a few calls have passed. A message of another size than its receiver names is an error.
//
// Thread-safe as a whole; each end as PointToPoint says.
std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed);

// Messages over TCP between ranks that are threads of a test.

// A rank on loopback; nullptr after a test failure.
std::unique_ptr<TcpListener> ListenOnLoopback();

// The arguments with which `rank`, of the ranks that listen at `listeners`, calls ConnectTcp.
TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank);

// The ends of `size` ranks on loopback. Fails the test, and returns nothing, if they do not connect.
std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size);

// Jobs whose tensors travel as messages, inside one test: every rank is a thread.

// One transport a rank: a MessageCommunicator over fake messages (with this seed), in chunks so small that little data
// takes many, and a control plane within the process.
std::vector<Transport> ConnectMessageTransports(int size, uint64_t seed);

// The same over TCP on loopback. Fails the test, and returns nothing, if the ranks do not connect.
std::vector<Transport> ConnectTcpTransports(int size);

// Jobs on several hosts inside one test: every rank is a thread.

// One transport a rank: shared memory between the ranks of a host, fake messages (with this seed)
// across hosts, and a control plane within the process.
std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
