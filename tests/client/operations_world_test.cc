// SPDX-License-Identifier: Apache-2.0

// Tests every operation of the C++ API, with ranks that are processes.
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"
#include "tests/client/rank_bodies.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

// Runs all bodies of one kind in one job, one after the other, so that a body that leaves something behind disturbs the
// next one.
void RunAll(const std::vector<RankBody>& bodies) {
  ronda::init();
  for (const RankBody& body : bodies) {
    SCOPED_TRACE(body.name);
    body.run();
    ronda::barrier();
  }
  ronda::shutdown();
}

const std::vector<RankProgram> kPrograms = {
    {"Reductions", [] { RunAll(ReductionBodies()); }},
    {"Exchanges", [] { RunAll(ExchangeBodies()); }},
    {"Coordination", [] { RunAll(CoordinationBodies()); }},
    {"Order", [] { RunAll(OrderBodies()); }},
};

class OperationsWorldTest : public ::testing::TestWithParam<int> {};

TEST_P(OperationsWorldTest, Reductions) { ExpectRankProgramSucceeds("Reductions", GetParam()); }
TEST_P(OperationsWorldTest, Exchanges) { ExpectRankProgramSucceeds("Exchanges", GetParam()); }
TEST_P(OperationsWorldTest, Coordination) { ExpectRankProgramSucceeds("Coordination", GetParam()); }
TEST_P(OperationsWorldTest, Order) { ExpectRankProgramSucceeds("Order", GetParam()); }

INSTANTIATE_TEST_SUITE_P(Ranks, OperationsWorldTest, ::testing::Values(2, 3, 4));

}  // namespace
const std::vector<RankProgram>& OperationsPrograms() { return kPrograms; }

}  // namespace ronda::testing
