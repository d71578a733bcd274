// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/last_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/monitor/rank_words.h"

namespace ronda {
namespace {

using ::testing::SizeIs;

constexpr absl::Duration kStart = absl::Seconds(1000);

FlightTime At(int milliseconds) { return kStart + absl::Milliseconds(milliseconds); }
uint64_t Nanoseconds(FlightTime time) { return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time)); }

// Returns a rank with steps of 20 ms, which have two buckets. In each step, it enters the first bucket at 8 + `late`
// ms, and the second at 12 ms. All ranks leave the first at 11 ms, and the second at 16 ms.
RankSnapshot MakeRank(RankId number, int steps, int late = 0) {
  RankSnapshot rank = {.identity = {.topology = {.rank = number}}};
  for (int step = 0; step < steps; ++step) {
    for (const auto& [enters, leaves] : {std::pair(8 + late, 11), std::pair(12, 16)}) {
      rank.sample.entries.push_back({.bucket = ++rank.sample.buckets,
                                     .time = Nanoseconds(At(20 * step + enters)),
                                     .step = static_cast<uint64_t>(step),
                                     .left = Nanoseconds(At(20 * step + leaves))});
    }
  }
  rank.sample.counts.steps = static_cast<uint64_t>(steps - 1);
  return rank;
}

std::vector<FlightEvent> NoEvents(size_t) { return {}; }

TEST(FindLastStepTest, HasTheBucketsOfTheStepThatEndedLast) {
  const auto step = FindLastStep({MakeRank(0, 4), MakeRank(1, 4, 2)}, NoEvents);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->begin, At(20 + 16));  // the end of the step before
  EXPECT_EQ(step->end, At(40 + 16));
  ASSERT_THAT(step->buckets, SizeIs(2));
  const StepBucket& bucket = step->buckets[0];
  EXPECT_EQ(bucket.complete, At(40 + 10));
  ASSERT_THAT(bucket.parts, SizeIs(2));
  EXPECT_EQ(bucket.parts[0].rank, 0);
  EXPECT_EQ(bucket.parts[0].entered, At(40 + 8));
  EXPECT_EQ(bucket.parts[1].entered, At(40 + 10));
  EXPECT_EQ(bucket.parts[1].left, At(40 + 11));
}

TEST(FindLastStepTest, FirstStepBeginsWithItsFirstBucket) {
  const auto step = FindLastStep({MakeRank(0, 2)}, NoEvents);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->begin, At(8));
}

TEST(FindLastStepTest, NoStepBeforeTheFirstHasEnded) {
  EXPECT_FALSE(FindLastStep({MakeRank(0, 1)}, NoEvents).has_value());
  EXPECT_FALSE(FindLastStep({}, NoEvents).has_value());
}

TEST(FindLastStepTest, StepThatARankIsStillInIsNotShown) {
  RankSnapshot slow = MakeRank(1, 3);
  slow.sample.entries.back().left = 0;
  const auto step = FindLastStep({MakeRank(0, 4), slow}, NoEvents);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->end, At(20 + 16));
}

TEST(FindLastStepTest, StepWithoutItsFirstBucketsIsNotShown) {
  RankSnapshot rank = MakeRank(0, 2);
  rank.sample.entries.erase(rank.sample.entries.begin());
  rank.sample.first_kept = 2;
  EXPECT_FALSE(FindLastStep({rank}, NoEvents).has_value());
}

TEST(FindLastStepTest, StepThatAnotherRankHasPartlyOverwrittenIsNotShown) {
  RankSnapshot fast = MakeRank(1, 4);
  fast.sample.first_kept = 6;
  EXPECT_FALSE(FindLastStep({MakeRank(0, 4), fast}, NoEvents).has_value());
}

TEST(FindLastStepTest, RanksOfOtherHostsAreLeftOut) {
  RankSnapshot other = MakeRank(1, 4);
  other.is_here = false;
  const auto step = FindLastStep({MakeRank(0, 4), other}, NoEvents);
  ASSERT_TRUE(step.has_value());
  EXPECT_THAT(step->buckets[0].parts, SizeIs(1));
}

TEST(FindLastStepTest, BucketHasTheNameWithWhichARankBeganIt) {
  const auto events = [](size_t index) -> std::vector<FlightEvent> {
    if (index == 0) {
      return {{.kind = FlightKind::kStarted, .name = "an earlier one", .bytes = 1, .time = At(20 + 9)},
              {.kind = FlightKind::kSubmitted, .name = "a part", .bytes = 2, .time = At(40 + 9)},
              {.kind = FlightKind::kStarted, .name = "conv1 and 3 more", .bytes = 4096, .time = At(40 + 9)}};
    }
    return {{.kind = FlightKind::kStarted, .name = "dense", .bytes = 64, .time = At(40 + 12)}};
  };
  const auto step = FindLastStep({MakeRank(0, 4), MakeRank(1, 4)}, events);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->buckets[0].name, "conv1 and 3 more");
  EXPECT_EQ(step->buckets[0].bytes, 4096u);
  EXPECT_EQ(step->buckets[1].name, "dense");
}

}  // namespace
}  // namespace ronda
