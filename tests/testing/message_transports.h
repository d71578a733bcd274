// SPDX-License-Identifier: Apache-2.0

// Provides fake messages, and TCP messages, between ranks that are threads of a test.
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

// Returns a PointToPoint for each of `size` ranks. Only a rank's own calls read or write the rank's buffers, as with a
// strict MPI. Some messages are read from the sender's buffer at once. Other messages, which `seed` chooses, are read
// only after the receiver has asked for them and a few calls have passed. It is an error if the sizes of sender and
// receiver differ.
//
// Different threads can use the objects of different ranks. Each object is as thread-safe as PointToPoint says.
std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed);

// The following functions are for messages over TCP between ranks that are threads of a test.

// Returns the listener of a rank on loopback, or nullptr after a test failure.
std::unique_ptr<TcpListener> ListenOnLoopback();

// Returns the arguments with which `rank` calls ConnectTcp, if the ranks listen at `listeners`.
TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank);

// Connects `size` ranks on loopback, and returns a PointToPoint for each rank. If the ranks do not connect, fails the
// test and returns an empty list.
std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size);

// The following functions are for jobs whose tensors travel as messages. Every rank is a thread of the test.

// Returns one transport per rank. A transport has a MessageCommunicator over fake messages with this seed, and a
// control plane within the process. Chunks are so small that even little data needs many chunks.
std::vector<Transport> ConnectMessageTransports(int size, uint64_t seed);

// Does the same as ConnectMessageTransports, over TCP on loopback. If the ranks do not connect, fails the test and
// returns an empty list.
std::vector<Transport> ConnectTcpTransports(int size);

// The following function is for jobs on several hosts. Every rank is a thread of the test.

// Returns one transport per rank. Ranks of one host use shared memory, and ranks of different hosts use fake messages
// with this seed. The control plane is within the process.
std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
