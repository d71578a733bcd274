// SPDX-License-Identifier: Apache-2.0

// Runs simulations of whole jobs that repeat their steps, each from a seed, which a failure prints. simulation.h lists
// the checks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/runtime/negotiation/simulation.h"

namespace ronda {
namespace {

using ::testing::IsEmpty;

class ScheduleProperty : public ::testing::TestWithParam<World> {};

TEST_P(ScheduleProperty, TheSameHoldsWhenSchedulesBeginAndAreLeftAtAnyTime) {
  Simulation simulation(GetParam());
  simulation.Run(15000);
  ASSERT_THAT(simulation.violations(), IsEmpty());
  simulation.Finish();
  EXPECT_THAT(simulation.violations(), IsEmpty());
  EXPECT_EQ(Replay(simulation.recording()), absl::OkStatus());
}

std::vector<World> WorldsWithSchedules() {
  std::vector<World> worlds;
  uint32_t seed = 1001;
  for (int ranks : {1, 2, 3, 5}) {
    for (int steps : {1, 2, 4}) {
      for (size_t capacity : {8, 64}) {
        worlds.push_back(
            {.ranks = ranks, .names = 5, .cache_capacity = capacity, .seed = seed++, .identical_steps = steps});
      }
    }
  }
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(RandomWorlds, ScheduleProperty, ::testing::ValuesIn(WorldsWithSchedules()));

TEST(ScheduleSimulation, MakesEverythingHappen) {
  Simulation::Counts total;
  for (uint32_t seed : {201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212}) {
    Simulation simulation({.ranks = 3, .names = 5, .cache_capacity = 64, .seed = seed, .identical_steps = 1});
    simulation.Run(80000);
    simulation.Finish();
    EXPECT_THAT(simulation.violations(), IsEmpty());
    const Simulation::Counts& counts = simulation.counts();
    total.schedules += counts.schedules;
    total.scheduled += counts.scheduled;
    total.vetoes += counts.vetoes;
    total.unlocked_for_tensor += counts.unlocked_for_tensor;
    total.unlocked_for_change += counts.unlocked_for_change;
    total.unlocked_for_join += counts.unlocked_for_join;
    total.unlocked_for_set += counts.unlocked_for_set;
    total.unlocked_for_shutdown += counts.unlocked_for_shutdown;
    total.unlocked_for_request += counts.unlocked_for_request;
    total.unlocked_for_lateness += counts.unlocked_for_lateness;
    total.unlocked_for_lack += counts.unlocked_for_lack;
    total.stale_reports += counts.stale_reports;
    total.early_requests += counts.early_requests;
  }
  EXPECT_GT(total.schedules, 30);
  EXPECT_GT(total.scheduled, 200);
  EXPECT_GT(total.vetoes, 30);
  EXPECT_GT(total.unlocked_for_tensor, 10);
  EXPECT_GT(total.unlocked_for_change, 3);
  EXPECT_GT(total.unlocked_for_join, 0);
  EXPECT_GT(total.unlocked_for_set, 0);
  EXPECT_GT(total.unlocked_for_shutdown, 0);
  EXPECT_GT(total.unlocked_for_request, 10);
  EXPECT_GT(total.unlocked_for_lateness, 5);
  EXPECT_GT(total.unlocked_for_lack, 0);
  EXPECT_GT(total.stale_reports, 10);
  EXPECT_GT(total.early_requests, 0);
}

}  // namespace
}  // namespace ronda
