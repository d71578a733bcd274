// SPDX-License-Identifier: Apache-2.0

// Runs simulations of whole jobs, each from a seed, which a failure prints. simulation.h lists the checks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/runtime/negotiation/simulation.h"

namespace ronda {
namespace {

using ::testing::IsEmpty;

class NegotiationProperty : public ::testing::TestWithParam<World> {};

TEST_P(NegotiationProperty, OnlyTensorsOfAllPresentRanksCompleteOnceInOneOrder) {
  Simulation simulation(GetParam());
  simulation.Run(6000);
  ASSERT_THAT(simulation.violations(), IsEmpty());
  simulation.Finish();
  EXPECT_THAT(simulation.violations(), IsEmpty());
}

std::vector<World> Worlds() {
  std::vector<World> worlds;
  uint32_t seed = 1;
  for (int ranks : {1, 2, 3, 5, 8}) {
    for (int names : {1, 5, 12}) {
      for (size_t capacity : {0, 1, 3, 64}) {
        worlds.push_back({.ranks = ranks, .names = names, .cache_capacity = capacity, .seed = seed++});
      }
    }
  }
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(RandomWorlds, NegotiationProperty, ::testing::ValuesIn(Worlds()));

TEST(NegotiationSimulation, MakesEverythingHappen) {
  Simulation::Counts total;
  for (uint32_t seed : {101, 102, 103}) {
    Simulation simulation({.ranks = 3, .names = 12, .cache_capacity = 8, .seed = seed});
    simulation.Run(6000);
    simulation.Finish();
    EXPECT_THAT(simulation.violations(), IsEmpty());
    const Simulation::Counts& counts = simulation.counts();
    total.executed += counts.executed;
    total.mismatches += counts.mismatches;
    total.joins += counts.joins;
    total.without_joined += counts.without_joined;
    total.sets += counts.sets;
    total.sets_by_members += counts.sets_by_members;
    total.removals += counts.removals;
    total.deadlines += counts.deadlines;
    total.groups += counts.groups;
    total.repeated += counts.repeated;
    total.by_id += counts.by_id;
    total.sent += counts.sent;
    total.refused += counts.refused;
  }
  EXPECT_GT(total.executed, 1000);
  EXPECT_GT(total.mismatches, 30);
  EXPECT_GT(total.joins, 10);
  EXPECT_GT(total.without_joined, 30);
  EXPECT_GT(total.sets, 3);
  EXPECT_GT(total.sets_by_members, 3);
  EXPECT_GT(total.removals, 0);
  EXPECT_GT(total.deadlines, 3);
  EXPECT_GT(total.groups, 100);
  EXPECT_GT(total.repeated, 10);
  EXPECT_GT(total.by_id, 200);
  EXPECT_GT(total.sent, 10);
  EXPECT_GT(total.refused, 3);
}

}  // namespace
}  // namespace ronda
