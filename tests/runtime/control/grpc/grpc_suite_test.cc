// SPDX-License-Identifier: Apache-2.0

// The promises of ControlPlane, tested over gRPC.
#include <utility>

#include "tests/runtime/control/control_plane_suite.h"
#include "tests/runtime/control/grpc/grpc_ranks.h"

namespace ronda::testing {
namespace {

ControlRanks Ranks(const std::string& name, const GrpcRanks& ranks) {
  const auto connect = [ranks] {
    std::vector<Transport> transports;
    for (std::unique_ptr<ControlPlane>& control : Connect(ranks)) {
      transports.push_back({.control = std::move(control), .communicator = nullptr, .flights = nullptr});
    }
    return transports;
  };
  return {.name = name, .size = ranks.size, .connect = connect};
}

INSTANTIATE_TEST_SUITE_P(Star, ControlPlaneTest,
                         ::testing::Values(Ranks("Grpc", {.size = 1}), Ranks("Grpc", {.size = 2}),
                                           Ranks("Grpc", {.size = 5})),
                         NameOfControlRanks);
INSTANTIATE_TEST_SUITE_P(Tree, ControlPlaneTest,
                         ::testing::Values(Ranks("Chain", {.size = 5, .fan_out = 1}),
                                           Ranks("Binary", {.size = 11, .fan_out = 2}),
                                           Ranks("IPv6Binary", {.size = 4, .fan_out = 2, .address = "::1"})),
                         NameOfControlRanks);

}  // namespace
}  // namespace ronda::testing
