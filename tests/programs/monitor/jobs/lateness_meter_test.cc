// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/lateness_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace ronda {
namespace {

using Kind = StragglerVerdict::Kind;

constexpr uint64_t kMillisecond = 1'000'000;

// Returns the sample of a rank that has entered buckets 1 to `buckets`, one per step of 100 ms, each of them `late` ms
// late.
RankSample After(uint64_t buckets, uint64_t late) {
  RankSample sample = {.buckets = buckets};
  if (buckets >= RankWords::kEntries) sample.first_kept = buckets - RankWords::kEntries + 1;
  for (uint64_t n = sample.first_kept; n <= buckets; ++n) {
    sample.entries.push_back({.bucket = n, .time = (n * 100 + late) * kMillisecond, .step = n});
  }
  return sample;
}

TEST(LatenessMeterTest, LatenessIsTheEntryMinusTheFirstRanks) {
  LatenessMeter meter({0, 1, 2});
  meter.Add({After(10, 0), After(10, 20), After(10, 5)});
  EXPECT_EQ(meter.measured(), 10u);
  EXPECT_EQ(meter.missed(), 0u);
  const std::vector<RankLateness>& ranks = meter.lateness();
  EXPECT_EQ(ranks[0].histogram.count, 10u);
  EXPECT_EQ(ranks[0].histogram.sum, absl::ZeroDuration());
  EXPECT_EQ(ranks[1].histogram.sum, absl::Milliseconds(200));
  EXPECT_EQ(ranks[1].last, 10u);
  EXPECT_EQ(ranks[1].blamed_wait, absl::Milliseconds(200));
  EXPECT_EQ(ranks[2].histogram.sum, absl::Milliseconds(50));
  EXPECT_EQ(ranks[2].last, 0u);
  EXPECT_EQ(ranks[2].blamed_wait, absl::ZeroDuration());
}

TEST(LatenessMeterTest, BucketsOfOverlappingSamplesCountOnce) {
  LatenessMeter meter({0, 1});
  for (const uint64_t buckets : {3, 3, 7, 200, 300, 300, 500}) meter.Add({After(buckets, 0), After(buckets, 20)});
  EXPECT_EQ(meter.measured(), 500u);
  EXPECT_EQ(meter.missed(), 0u);
  EXPECT_EQ(meter.lateness()[1].histogram.count, 500u);
  EXPECT_EQ(meter.lateness()[1].histogram.sum, 500 * absl::Milliseconds(20));
}

TEST(LatenessMeterTest, BucketsCountWhenAllRanksHaveEnteredThem) {
  LatenessMeter meter({0, 1});
  meter.Add({After(10, 0), After(8, 20)});
  EXPECT_EQ(meter.measured(), 8u);
  RankSample is_coming = After(9, 20);
  is_coming.entries.pop_back();  // it has counted the bucket, and has not stored its entry
  meter.Add({After(10, 0), is_coming});
  EXPECT_EQ(meter.measured(), 8u);
  meter.Add({After(10, 0), After(10, 20)});
  EXPECT_EQ(meter.measured(), 10u);
  EXPECT_EQ(meter.missed(), 0u);
}

TEST(LatenessMeterTest, OverwrittenBucketsAreMissedButForThoseBeforeTheFirstSample) {
  LatenessMeter meter({0, 1});
  meter.Add({After(1000, 0), After(1000, 20)});
  EXPECT_EQ(meter.measured(), 256u);
  EXPECT_EQ(meter.missed(), 0u);
  meter.Add({After(1300, 0), After(1300, 20)});
  EXPECT_EQ(meter.measured(), 512u);
  EXPECT_EQ(meter.missed(), 44u);
}

TEST(LatenessMeterTest, BucketsOfWhichOneRankIsPartAreNotMeasured) {
  LatenessMeter meter({0, 1});
  RankSample other = After(10, 20);
  std::erase_if(other.entries, [](const BucketEntry& entry) { return entry.bucket == 4 || entry.bucket == 5; });
  meter.Add({After(10, 0), other});
  EXPECT_EQ(meter.measured(), 8u);
  EXPECT_EQ(meter.lateness()[0].histogram.count, 8u);
  EXPECT_EQ(meter.missed(), 0u);
}

// Like After(), for a rank whose clock is `offset` ms ahead. All ranks leave each bucket 50 ms after it begins, but
// have not left the last one yet if `is_in_last`.
RankSample OnAnotherClock(uint64_t buckets, uint64_t late, uint64_t offset, bool is_in_last = false) {
  RankSample sample = After(buckets, late + offset);
  for (BucketEntry& entry : sample.entries) entry.left = (entry.bucket * 100 + offset + 50) * kMillisecond;
  if (is_in_last) sample.entries.back().left = 0;
  return sample;
}

TEST(LatenessMeterTest, BetweenClocksLatenessIsTheLongestTimeInTheBucketMinusTheOwn) {
  LatenessMeter meter({0, 1, 2}, LatenessMeter::Clocks::kOfEachHost);
  meter.Add({OnAnotherClock(10, 0, 0), OnAnotherClock(10, 20, 77'000), OnAnotherClock(10, 5, 3)});
  EXPECT_EQ(meter.measured(), 10u);
  EXPECT_EQ(meter.lateness()[0].histogram.sum, absl::ZeroDuration());
  EXPECT_EQ(meter.lateness()[1].histogram.sum, absl::Milliseconds(200));
  EXPECT_EQ(meter.lateness()[1].last, 10u);
  EXPECT_EQ(meter.lateness()[1].blamed_wait, absl::Milliseconds(200));
  EXPECT_EQ(meter.lateness()[2].histogram.sum, absl::Milliseconds(50));
}

TEST(LatenessMeterTest, BetweenClocksBucketsCountWhenAllRanksHaveLeftThem) {
  LatenessMeter meter({0, 1}, LatenessMeter::Clocks::kOfEachHost);
  meter.Add({OnAnotherClock(10, 0, 0), OnAnotherClock(10, 20, 9, true)});
  EXPECT_EQ(meter.measured(), 9u);
  meter.Add({OnAnotherClock(10, 0, 0), OnAnotherClock(10, 20, 9)});
  EXPECT_EQ(meter.measured(), 10u);
  EXPECT_EQ(meter.missed(), 0u);
}

TEST(LatenessMeterTest, HistogramHasAClassForEachBoundAndOneAbove) {
  LatenessHistogram histogram;
  for (const absl::Duration bound : kLatenessBounds) {
    histogram.Add(bound);
    histogram.Add(bound + absl::Nanoseconds(1));
  }
  histogram.Add(absl::ZeroDuration());
  EXPECT_EQ(histogram.count, 2 * kLatenessBounds.size() + 1);
  for (size_t i = 0; i < kLatenessBounds.size(); ++i) EXPECT_EQ(histogram.counts[i], 2u) << kLatenessBounds[i];
  EXPECT_EQ(histogram.counts.back(), 1u);
  EXPECT_TRUE(std::is_sorted(kLatenessBounds.begin(), kLatenessBounds.end()));
}

TEST(LatenessMeterTest, StragglerIsFoundThroughAllSamples) {
  LatenessMeter meter({4, 7});
  for (uint64_t buckets = 1; buckets <= 301; ++buckets) meter.Add({After(buckets, 0), After(buckets, 20)});
  EXPECT_EQ(meter.straggler().Judge().kind, Kind::kChronic);
  EXPECT_EQ(meter.straggler().Judge().rank, 7);
}

TEST(LatenessMeterTest, NoRanksAreNotLate) {
  LatenessMeter meter({});
  meter.Add({});
  EXPECT_EQ(meter.measured(), 0u);
}

}  // namespace
}  // namespace ronda
