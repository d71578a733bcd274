// SPDX-License-Identifier: Apache-2.0

// Messages between ranks that are threads of a test.
#ifndef RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
#define RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"
#include "runtime/point_to_point/point_to_point.h"
#include "runtime/tcp/tcp_listener.h"
#include "runtime/tcp/tcp_mesh.h"

namespace ronda::testing {

// Returns the ends of `size` ranks. They are as strict about buffers as an MPI may be: only a rank's own calls touch
// its memory. Some messages are read at once. Others, which follow from `seed`, are read only after the receiver has
// asked for them and a few calls have passed. If a message's size differs from the size that its receiver names, that
// is an error.
//
// Different ends can be used in different threads. Each end is as thread-safe as PointToPoint says.
std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed);

// Messages over TCP between ranks that are threads of a test.

// Returns the listener of a rank on loopback, or nullptr after a test failure.
std::unique_ptr<TcpListener> ListenOnLoopback();

// Returns the arguments with which `rank` calls ConnectTcp, if the ranks listen at `listeners`.
TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank);

// Returns the ends of `size` ranks on loopback. If they do not connect, fails the test and returns nothing.
std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size);

// Jobs whose tensors travel as messages, inside one test: every rank is a thread.

// One transport per rank: a MessageCommunicator over fake messages (with this seed), in chunks so small that little
// data needs many, and a control plane within the process.
std::vector<Transport> ConnectMessageTransports(int size, uint64_t seed);

// As ConnectMessageTransports, over TCP on loopback. If the ranks do not connect, fails the test and returns nothing.
std::vector<Transport> ConnectTcpTransports(int size);

// Jobs on several hosts inside one test: every rank is a thread.

// One transport per rank: shared memory between the ranks of a host, fake messages (with this seed) across hosts, and a
// control plane within the process.
std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
