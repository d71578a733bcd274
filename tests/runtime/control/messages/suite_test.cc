// SPDX-License-Identifier: Apache-2.0

// Tests the guarantees of ControlPlane over TCP, and over a message library that cannot wake a thread.
#include <iostream>
#include <random>
#include <utility>

#include "tests/runtime/control/control_plane_suite.h"
#include "tests/runtime/control/messages/message_ranks.h"
#include "tests/runtime/control/messages/tcp_ranks.h"

namespace ronda::testing {
namespace {

std::vector<Transport> ToTransports(std::vector<std::unique_ptr<ControlPlane>> planes) {
  std::vector<Transport> transports;
  for (std::unique_ptr<ControlPlane>& control : planes) {
    transports.push_back({.control = std::move(control), .communicator = nullptr, .flights = nullptr});
  }
  return transports;
}

ControlRanks Ranks(const std::string& name, const MessageRanks& ranks) {
  const auto connect = [ranks] {
    MessageRanks seeded = ranks;
    seeded.seed = std::random_device()();
    std::cout << "seed " << seeded.seed << "\n";
    return ToTransports(Connect(seeded));
  };
  return {.name = name, .size = ranks.size, .connect = connect};
}

ControlRanks Ranks(const std::string& name, const TcpRanks& ranks) {
  return {.name = name, .size = ranks.size, .connect = [ranks] { return ToTransports(Connect(ranks)); }};
}

void HasCores(TcpRank& rank) { rank.control.cores = PollLimit::Cores::kSuffice; }

INSTANTIATE_TEST_SUITE_P(Messages, ControlPlaneTest,
                         ::testing::Values(Ranks("Star", MessageRanks{.size = 1}),
                                           Ranks("Star", MessageRanks{.size = 2}),
                                           Ranks("Star", MessageRanks{.size = 5}),
                                           Ranks("Chain", MessageRanks{.size = 4, .fan_out = 1}),
                                           Ranks("Binary", MessageRanks{.size = 11, .fan_out = 2})),
                         NameOfControlRanks);
INSTANTIATE_TEST_SUITE_P(Tcp, ControlPlaneTest,
                         ::testing::Values(Ranks("Star", TcpRanks{.size = 1}), Ranks("Star", TcpRanks{.size = 2}),
                                           Ranks("StarWithCores", TcpRanks{.size = 2, .adapt = HasCores}),
                                           Ranks("Star", TcpRanks{.size = 7}),
                                           Ranks("Chain", TcpRanks{.size = 5, .fan_out = 1}),
                                           Ranks("Binary", TcpRanks{.size = 11, .fan_out = 2}),
                                           Ranks("IPv6Binary", TcpRanks{.size = 4, .fan_out = 2, .address = "::1"})),
                         NameOfControlRanks);

}  // namespace
}  // namespace ronda::testing
