// SPDX-License-Identifier: Apache-2.0

// Tests every operation of the C++ API, with ranks that are threads.
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"
#include "tests/client/rank_bodies.h"

namespace ronda::testing {
namespace {

class OperationsThreadsTest : public ::testing::TestWithParam<RankBody> {};

TEST_P(OperationsThreadsTest, GivesTheRightResultsOnOneToFourRanks) {
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    ASSERT_NO_THROW(ronda::run_threads(size, GetParam().run));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Bodies, OperationsThreadsTest, ::testing::ValuesIn(AllRankBodies()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ronda::testing
