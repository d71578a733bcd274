// SPDX-License-Identifier: Apache-2.0

// Tests the control planes of the backends within a host.
#include "tests/runtime/control/control_plane_suite.h"
#include "tests/testing/backends.h"

namespace ronda::testing {
namespace {

std::vector<ControlRanks> EveryControlPlane() {
  std::vector<ControlRanks> all;
  for (const auto& [backend, size] : EveryBackend({1, 2, 5})) {
    if (!IsTestable(backend, size)) continue;
    all.push_back({.name = Name(backend), .size = size, .connect = [backend = backend, size = size] {
                     return ConnectRanks(backend, {.size = size});
                   }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, ControlPlaneTest, ::testing::ValuesIn(EveryControlPlane()), NameOfControlRanks);

}  // namespace
}  // namespace ronda::testing
