// SPDX-License-Identifier: Apache-2.0

// The promises of ControlPlane, tested over messages.
#include <iostream>
#include <random>
#include <utility>

#include "tests/runtime/control/control_plane_suite.h"
#include "tests/runtime/control/mpi/message_ranks.h"

namespace ronda::testing {
namespace {

ControlRanks Ranks(const std::string& name, const MessageRanks& ranks) {
  const auto connect = [ranks] {
    MessageRanks seeded = ranks;
    seeded.seed = std::random_device()();
    std::cout << "seed " << seeded.seed << "\n";
    std::vector<Transport> transports;
    for (std::unique_ptr<ControlPlane>& control : Connect(seeded)) {
      transports.push_back({.control = std::move(control), .communicator = nullptr, .flights = nullptr});
    }
    return transports;
  };
  return {.name = name, .size = ranks.size, .connect = connect};
}

INSTANTIATE_TEST_SUITE_P(Default, ControlPlaneTest,
                         ::testing::Values(Ranks("Mpi", {.size = 1}), Ranks("Mpi", {.size = 2}),
                                           Ranks("Mpi", {.size = 3}), Ranks("Mpi", {.size = 5}),
                                           Ranks("Mpi", {.size = 8})),
                         NameOfControlRanks);
INSTANTIATE_TEST_SUITE_P(Tree, ControlPlaneTest,
                         ::testing::Values(Ranks("Chain", {.size = 4, .fan_out = 1}),
                                           Ranks("Binary", {.size = 11, .fan_out = 2})),
                         NameOfControlRanks);

}  // namespace
}  // namespace ronda::testing
