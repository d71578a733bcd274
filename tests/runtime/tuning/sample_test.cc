#include "runtime/tuning/sample.h"

#include <vector>

#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(SampleTest, QuantilesLieBetweenTheRounds) {
  const Sample sample({40, 10, 30, 20, 50});
  EXPECT_DOUBLE_EQ(sample.Quantile(0), 10);
  EXPECT_DOUBLE_EQ(sample.lower_quartile(), 20);
  EXPECT_DOUBLE_EQ(sample.median(), 30);
  EXPECT_DOUBLE_EQ(sample.upper_quartile(), 40);
  EXPECT_DOUBLE_EQ(sample.Quantile(1), 50);
  EXPECT_DOUBLE_EQ(Sample({1, 2}).median(), 1.5);
}

TEST(SampleTest, OneRoundIsAllThereIs) {
  const Sample sample({7});
  EXPECT_DOUBLE_EQ(sample.lower_quartile(), 7);
  EXPECT_DOUBLE_EQ(sample.upper_quartile(), 7);
  EXPECT_DOUBLE_EQ(sample.median_error(), 0);
}

TEST(SampleTest, MoreRoundsOfTheSameSpreadMakeTheMedianSurer) {
  std::vector<double> rounds;
  for (int i = 0; i < 10; ++i) rounds.insert(rounds.end(), {90, 95, 100, 105, 110});
  EXPECT_LT(Sample(rounds).median_error(), Sample({90, 95, 100, 105, 110}).median_error());
}

TEST(SampleTest, ASingleVeryLongRoundMovesTheMedianLittle) {
  EXPECT_DOUBLE_EQ(Sample({10, 10, 10, 10, 1e9}).median(), 10);
}

TEST(IsFasterTest, AClearGainCounts) {
  EXPECT_TRUE(IsFaster({Sample({80, 81, 82})}, {Sample({99, 100, 101})}, 0.02));
  EXPECT_FALSE(IsFaster({Sample({99, 100, 101})}, {Sample({80, 81, 82})}, 0.02));
}

TEST(IsFasterTest, LessThanTheSmallestGainDoesNot) {
  EXPECT_FALSE(IsFaster({Sample({99, 99, 99})}, {Sample({100, 100, 100})}, 0.02));
  EXPECT_TRUE(IsFaster({Sample({97, 97, 97})}, {Sample({100, 100, 100})}, 0.02));
}

TEST(IsFasterTest, AGainWithinTheNoiseDoesNot) {
  EXPECT_FALSE(IsFaster({Sample({60, 80, 95, 120, 140})}, {Sample({60, 80, 100, 120, 140})}, 0.02));
}

TEST(IsFasterTest, OnePairThatWasLostDecides) {
  const Sample fast({50, 51, 52});
  const Sample usual({100, 101, 102});
  EXPECT_TRUE(IsFaster({fast, fast, fast}, {usual, usual, usual}, 0.02));
  EXPECT_FALSE(IsFaster({fast, usual, fast}, {usual, usual, usual}, 0.02));
}

// Without the comparison within pairs the spread would be that of the machine's speed.
TEST(IsFasterTest, AMachineThatSlowsDownBetweenPairsHidesNothing) {
  EXPECT_TRUE(IsFaster({Sample({89, 90, 91}), Sample({178, 180, 182})},
                       {Sample({99, 100, 101}), Sample({198, 200, 202})}, 0.02));
}

}  // namespace
}  // namespace ronda
