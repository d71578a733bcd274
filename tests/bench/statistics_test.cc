#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace ronda::bench {
namespace {

TEST(QuantileTest, InterpolatesBetweenNeighbours) {
  const std::vector<double> sorted = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(Quantile(sorted, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(sorted, 0.5), 3);
  EXPECT_DOUBLE_EQ(Quantile(sorted, 1), 8);
  EXPECT_DOUBLE_EQ(Quantile(sorted, 1.0 / 6), 1.5);
  EXPECT_DOUBLE_EQ(Quantile({7}, 0.9), 7);
}

TEST(SummarizeTest, SortsFirst) {
  const Summary summary = Summarize({5, 1, 4, 2, 3});
  EXPECT_EQ(summary.count, 5u);
  EXPECT_DOUBLE_EQ(summary.min, 1);
  EXPECT_DOUBLE_EQ(summary.median, 3);
  EXPECT_DOUBLE_EQ(summary.p10, 1.4);
  EXPECT_DOUBLE_EQ(summary.p90, 4.6);
  EXPECT_DOUBLE_EQ(summary.max, 5);
  EXPECT_DOUBLE_EQ(summary.mean, 3);
}

TEST(SummarizeTest, NothingIsAllZeros) {
  const Summary summary = Summarize({});
  EXPECT_EQ(summary.count, 0u);
  EXPECT_EQ(summary.max, 0);
}

TEST(MedianTest, OneOutlierDoesNotMatter) { EXPECT_DOUBLE_EQ(Median({1, 1000, 2}), 2); }

TEST(MedianRatioTest, ComparesRoundByRound) {
  // The machine slows down by ten in the second round: the ratio of the medians would be 10 / 5.
  EXPECT_DOUBLE_EQ(MedianRatio({3, 30, 3}, {1, 10, 1}), 3);
}

}  // namespace
}  // namespace ronda::bench
