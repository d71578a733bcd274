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

// The ends of `size` ranks, as strict about buffers as an MPI may be. Only a rank's own calls touch its memory. Some
// messages are read at once; others, chosen by numbers that follow from `seed`, only after the receiver has asked for
// them and a few calls have passed. If a message's size differs from the one that its receiver names, that is an error.
//
// All ends together are thread-safe; each end is as PointToPoint says.
std::vector<std::unique_ptr<PointToPoint>> ConnectFakeMessages(int size, uint64_t seed);

// Messages over TCP between ranks that are threads of a test.

// A rank on loopback; nullptr after a test failure.
std::unique_ptr<TcpListener> ListenOnLoopback();

// The arguments with which `rank` calls ConnectTcp, if the ranks listen at `listeners`.
TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank);

// The ends of `size` ranks on loopback. Fails the test, and returns nothing, if they do not connect.
std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size);

// Jobs whose tensors travel as messages, inside one test: every rank is a thread.

// One transport per rank: a MessageCommunicator over fake messages (with this seed), in chunks so small that little
// data needs many, and a control plane within the process.
std::vector<Transport> ConnectMessageTransports(int size, uint64_t seed);

// The same over TCP on loopback. Fails the test, and returns nothing, if the ranks do not connect.
std::vector<Transport> ConnectTcpTransports(int size);

// Jobs on several hosts inside one test: every rank is a thread.

// One transport per rank: shared memory between the ranks of a host, fake messages (with this seed) across hosts, and a
// control plane within the process.
std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_MESSAGE_TRANSPORTS_H_
