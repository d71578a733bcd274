// Messages over TCP between ranks that are threads of a test.
#ifndef RONDA_TESTS_TESTING_TCP_RANKS_H_
#define RONDA_TESTS_TESTING_TCP_RANKS_H_

#include <memory>
#include <vector>

#include "runtime/collectives/messages/point_to_point.h"
#include "runtime/tcp/tcp_listener.h"
#include "runtime/tcp/tcp_mesh.h"

namespace ronda::testing {

// A rank on loopback; nullptr after a test failure.
std::unique_ptr<TcpListener> ListenOnLoopback();

// What `rank` of those that listen at `listeners` tells ConnectTcp.
TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank);

// The ends of `size` ranks on loopback. Fails the test, and returns nothing, if they do not connect.
std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_TCP_RANKS_H_
