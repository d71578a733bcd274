// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_MESSAGE_RANKS_H_
#define RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_MESSAGE_RANKS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/control/messages/message_control_plane.h"
#include "tests/runtime/control/messages/planes.h"

namespace ronda::testing {

// A job whose ranks are in this process and exchange fake messages (message_transports.h).
struct MessageRanks {
  int size = 2;
  int fan_out = kMpiControlFanOut;
  uint64_t seed = 1;
  // May change each rank's options before the rank connects. nullptr changes nothing.
  std::function<void(MessageControlPlaneOptions& options)> adapt = nullptr;
};

// Returns each rank's control plane options.
std::vector<MessageControlPlaneOptions> OptionsOf(const MessageRanks& ranks);

// Connects the ranks, each on its own thread.
TriedPlanes ConnectAll(std::vector<MessageControlPlaneOptions> options);

// Connects the ranks, and expects all of them to connect. If one does not, returns no ranks.
Planes Connect(const MessageRanks& ranks);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_MESSAGES_MESSAGE_RANKS_H_
