// SPDX-License-Identifier: Apache-2.0

// Connects ranks that are threads of a test, through fake messages or TCP.
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

// Returns a PointToPoint for each of `size` ranks. A rank's buffers are read and written only during the rank's own
// calls, as in a strict MPI. Depending on `seed`, a message is read from the sender's buffer at once, or only after the
// receiver has asked for it and the sender has made a few more calls. It is an error if the sender and the receiver
// pass different sizes.
//
// The ranks can be on different threads. Each object is as thread-safe as PointToPoint documents.
std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed);

// The following functions connect ranks over TCP.

// Returns a rank's listener on loopback. If it cannot listen, fails the test and returns nullptr.
std::unique_ptr<TcpListener> ListenOnLoopback();

// Returns the options for the ConnectTcp call of `rank`, in a job whose ranks listen at `listeners`.
TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank);

// Connects `size` ranks on loopback, and returns a PointToPoint for each rank. If the ranks do not connect, fails the
// test and returns an empty list.
std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size);

// The following functions are for jobs whose tensors travel as messages. Every rank is a thread of the test.

// Returns one transport per rank. Each transport has a MessageCommunicator over ConnectFakeMessages, and an in-process
// control plane. Chunks are so small that even little data takes many chunks.
std::vector<Transport> ConnectMessageTransports(int size, uint64_t seed);

// Like ConnectMessageTransports, but over TCP on loopback. If the ranks do not connect, fails the test and returns an
// empty list.
std::vector<Transport> ConnectTcpTransports(int size);

// The following function is for jobs on several hosts. Every rank is a thread of the test.

// Returns one transport per rank. Tensors travel through shared memory within a host, and as fake messages
// (ConnectFakeMessages) between hosts. The control plane is in-process.
std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
