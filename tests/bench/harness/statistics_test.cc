// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <vector>

#include "bench/harness/statistics.h"

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
}

TEST(SummarizeTest, SummaryOfNoSamplesIsZero) {
  const Summary summary = Summarize({});
  EXPECT_EQ(summary.count, 0u);
  EXPECT_EQ(summary.max, 0);
}

TEST(MedianTest, OneOutlierDoesNotMatter) { EXPECT_DOUBLE_EQ(Median({1, 1000, 2}), 2); }

TEST(MedianRatioTest, ComparesRoundByRound) {
  // The rounds have the ratios 3, 2 and 4, whose median is 3. The ratio of the medians, 8 / 2, would be 4.
  EXPECT_DOUBLE_EQ(MedianRatio({3, 20, 8}, {1, 10, 2}), 3);
}

TEST(HistogramTest, HasFourStepsToADoubling) {
  Histogram histogram;
  for (const double value : {1.0, 1.1, 1.2, 1.9, 2.0}) histogram.Add(value);
  const std::vector<Histogram::Bin> bins = histogram.Bins();
  ASSERT_EQ(bins.size(), 5u);
  EXPECT_DOUBLE_EQ(bins[0].begin, 1);
  EXPECT_DOUBLE_EQ(bins[4].begin, 2);
  EXPECT_EQ(bins[0].count, 2);
  EXPECT_EQ(bins[1].count, 1);
  EXPECT_EQ(bins[2].count, 0);
  EXPECT_EQ(bins[3].count, 1);
  EXPECT_EQ(bins[4].count, 1);
}

TEST(HistogramTest, GrowsInBothDirectionsAndLosesNothing) {
  Histogram histogram;
  for (const double value : {100.0, 0.01, 3.0, 1e6, 0.001}) histogram.Add(value);
  int64_t total = 0;
  double previous_end = 0;
  for (const Histogram::Bin& bin : histogram.Bins()) {
    if (previous_end != 0) {
      EXPECT_DOUBLE_EQ(bin.begin, previous_end);
    }
    previous_end = bin.end;
    total += bin.count;
  }
  EXPECT_EQ(total, 5);
}

TEST(HistogramTest, TextLeavesEmptyBinsOut) {
  Histogram histogram;
  for (int i = 0; i < 3; ++i) histogram.Add(1);
  histogram.Add(1000);
  EXPECT_EQ(histogram.Text(), "       1.00 -      1.19         3  75.00 % " + std::string(50, '#') +
                                  "\n  ...\n     861.08 -   1024.00         1  25.00 % " + std::string(17, '#') + "\n");
}

TEST(HistogramTest, EmptyHistogramHasNoText) { EXPECT_EQ(Histogram().Text(), ""); }

}  // namespace
}  // namespace ronda::bench
