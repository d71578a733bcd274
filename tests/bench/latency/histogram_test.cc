#include "bench/latency/histogram.h"

#include <gtest/gtest.h>

#include <vector>

namespace ronda::bench {
namespace {

TEST(HistogramTest, HasFourStepsToADoubling) {
  Histogram histogram;
  for (const double value : {1.0, 1.1, 1.2, 1.9, 2.0}) histogram.Add(value);
  const std::vector<Histogram::Bucket> buckets = histogram.Buckets();
  ASSERT_EQ(buckets.size(), 5u);
  EXPECT_DOUBLE_EQ(buckets[0].begin, 1);
  EXPECT_DOUBLE_EQ(buckets[4].begin, 2);
  EXPECT_EQ(buckets[0].count, 2);
  EXPECT_EQ(buckets[1].count, 1);
  EXPECT_EQ(buckets[2].count, 0);
  EXPECT_EQ(buckets[3].count, 1);
  EXPECT_EQ(buckets[4].count, 1);
}

TEST(HistogramTest, GrowsInBothDirectionsAndLosesNothing) {
  Histogram histogram;
  for (const double value : {100.0, 0.01, 3.0, 1e6, 0.001}) histogram.Add(value);
  int64_t total = 0;
  double previous_end = 0;
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    if (previous_end != 0) {
      EXPECT_DOUBLE_EQ(bucket.begin, previous_end);
    }
    previous_end = bucket.end;
    total += bucket.count;
  }
  EXPECT_EQ(total, 5);
}

TEST(HistogramTest, TextLeavesEmptyBucketsOut) {
  Histogram histogram;
  for (int i = 0; i < 3; ++i) histogram.Add(1);
  histogram.Add(1000);
  EXPECT_EQ(histogram.Text(), "       1.00 -      1.19         3  75.00 % " + std::string(50, '#') +
                                  "\n  ...\n     861.08 -   1024.00         1  25.00 % " + std::string(17, '#') + "\n");
}

TEST(HistogramTest, NothingHasNoText) { EXPECT_EQ(Histogram().Text(), ""); }

}  // namespace
}  // namespace ronda::bench
