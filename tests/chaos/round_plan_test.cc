// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/round_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ronda::chaos {
namespace {

constexpr int kSize = 4;

TEST(RoundPlanTest, IsAFunctionOfItsSeed) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RoundPlan plan = PlanRound(seed, kSize);
    const RoundPlan again = PlanRound(seed, kSize);
    ASSERT_EQ(Describe(plan), Describe(again));
    ASSERT_EQ(plan.sets, again.sets);
    ASSERT_EQ(plan.last_steps, again.last_steps);
    for (size_t i = 0; i < plan.batches.size(); ++i) {
      ASSERT_EQ(plan.batches[i].size(), again.batches[i].size());
      ASSERT_EQ(plan.batches[i].back().seed, again.batches[i].back().seed);
    }
  }
}

TEST(RoundPlanTest, AttackersSurvive) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Injury injury = PlanRound(seed, kSize).injury;
    ASSERT_EQ(std::count(injury.victims.begin(), injury.victims.end(), injury.attacker), 0) << "seed " << seed;
  }
}

TEST(RoundPlanTest, EveryKindOfOperationAndInjuryComesAlong) {
  std::set<OperationKind> operations;
  std::set<Injury::Kind> injuries;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RoundPlan plan = PlanRound(seed, kSize);
    injuries.insert(plan.injury.kind);
    for (const auto& batch : plan.batches) {
      for (const OperationPlan& operation : batch) operations.insert(operation.kind);
    }
    for (const OperationPlan& operation : plan.in_turn) operations.insert(operation.kind);
  }
  EXPECT_EQ(operations.size(), kOperationKindCount);
  EXPECT_EQ(injuries.size(), 4);
}

}  // namespace
}  // namespace ronda::chaos
