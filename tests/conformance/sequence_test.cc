// SPDX-License-Identifier: Apache-2.0

// Runs operations without pauses, in random order, of random sizes and in random groups. An operation must not disturb
// the next one, and a rank that is ahead must not overwrite data that another rank is still reading.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/conformance/conformance_suite.h"
#include "tests/conformance/random_walk.h"

namespace ronda::testing {
namespace {

class SequenceConformanceTest : public ConformanceTest {};

RONDA_CONFORMANCE_SUITE(SequenceConformanceTest);

TEST_P(SequenceConformanceTest, OperationsDoNotDisturbEachOther) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  constexpr int kOperations = 200;
  OnEveryRank([&](RankId rank, Transport& transport) {
    RandomWalk walk(seed, rank, *transport.communicator);
    for (int i = 0; i < kOperations && !HasFatalFailure(); ++i) walk.Step();
  });
}

}  // namespace
}  // namespace ronda::testing
