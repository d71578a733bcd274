// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_TCP_RANKS_H_
#define RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_TCP_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/control/messages/message_control_plane.h"
#include "runtime/tcp/tcp_listener.h"
#include "runtime/tcp/tcp_mesh.h"
#include "tests/runtime/control/messages/planes.h"

namespace ronda::testing {

// A rank that has not connected yet, and whose control messages travel over TCP.
struct TcpRank {
  MessageControlPlaneOptions control;  // without messages
  TcpMeshOptions mesh;
  std::shared_ptr<const TcpListener> listener;  // of a rank with children
};

// A job whose ranks connect over loopback.
struct TcpRanks {
  int size = 2;
  int fan_out = kControlFanOut;
  std::string address = "127.0.0.1";
  std::string secret = "open sesame";
  // May change each rank before it connects. nullptr changes nothing.
  std::function<void(TcpRank& rank)> adapt = nullptr;
};

// Returns the ranks of a job within this process, which already listen.
std::vector<TcpRank> RanksOf(const TcpRanks& ranks);

// Connects one rank.
absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectRank(TcpRank rank);

// Connects the ranks, each on its own thread.
TriedPlanes ConnectAll(std::vector<TcpRank> ranks);

// Connects the ranks, and expects all of them to connect. If one does not, returns an empty list.
Planes Connect(const TcpRanks& ranks);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_TCP_RANKS_H_
