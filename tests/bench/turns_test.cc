#include "bench/turns.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ronda::bench {
namespace {

TEST(IterationsForTest, FillABlockWithinBounds) {
  const TurnOptions options = {.block_time = absl::Milliseconds(20), .max_iterations = 2000};
  EXPECT_EQ(IterationsFor(1e-3, options), 20);
  EXPECT_EQ(IterationsFor(1e-7, options), 2000);
  EXPECT_EQ(IterationsFor(0, options), 2000);
  EXPECT_EQ(IterationsFor(1, options), 2);
}

TEST(TakeTurnsTest, EveryContestantHasItsBlockInEveryRound) {
  const absl::StatusOr<std::unique_ptr<Team>> alone = Team::Create({.rank = 0, .size = 1, .job_id = "turns-test"});
  ASSERT_TRUE(alone.ok());
  std::vector<std::string> blocks;  // whose, in order
  const auto contestant = [&](const char* name) {
    return [&blocks, name](int iterations) {
      if (blocks.empty() || blocks.back() != name) blocks.emplace_back(name);
      return 1e-6 * iterations;
    };
  };
  const TurnOptions options = {.rounds = 3, .block_time = absl::Microseconds(20), .max_iterations = 5};
  const std::vector<Turns> turns = TakeTurns({contestant("a"), contestant("b")}, options, alone->get());
  // Calibration, the round that warms up, and three more.
  EXPECT_EQ(blocks, (std::vector<std::string>{"a", "b", "a", "b", "a", "b", "a", "b", "a", "b"}));
  ASSERT_EQ(turns.size(), 2u);
  for (const Turns& each : turns) {
    ASSERT_EQ(each.microseconds.size(), 3u);
    for (const double microseconds : each.microseconds) EXPECT_NEAR(microseconds, 1, 1e-6);
    EXPECT_EQ(each.iterations, 5);
  }
}

}  // namespace
}  // namespace ronda::bench
