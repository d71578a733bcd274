// SPDX-License-Identifier: Apache-2.0

#include "runtime/tuning/autotuner.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

using Decision = Autotuner::Decision;
using Stage = Autotuner::Stage;

// The time of a round at a point, in microseconds.
using Surface = std::function<double(const TuningPoint&)>;

std::vector<Autotuner::Measurement> Search(Autotuner* tuner, const Surface& surface) {
  std::vector<Autotuner::Measurement> measurements;
  while (!tuner->finished()) {
    const auto measurement = tuner->AddRound(absl::Microseconds(surface(tuner->point())));
    if (measurement) measurements.push_back(*measurement);
  }
  return measurements;
}

TEST(AutotunerTest, BeginsWithTheDefaults) {
  const Autotuner tuner({.grid = {3, 2}});
  EXPECT_FALSE(tuner.finished());
  EXPECT_THAT(tuner.point(), ElementsAre(0, 0));
}

TEST(AutotunerTest, FindsTheBestOfEachDimension) {
  Autotuner tuner({.grid = {4, 3}});
  Search(&tuner, [](const TuningPoint& point) { return 100.0 + (point[0] == 2 ? 0 : 50) + (point[1] == 1 ? 0 : 20); });
  EXPECT_THAT(tuner.point(), ElementsAre(2, 1));
}

TEST(AutotunerTest, StaysWithDefaultsThatAreTheBest) {
  Autotuner tuner({.grid = {4, 3}});
  const auto measurements = Search(&tuner, [](const TuningPoint& point) {
    return 100.0 + (point == TuningPoint{0, 0} ? 0 : 10);
  });
  EXPECT_THAT(tuner.point(), ElementsAre(0, 0));
  for (const auto& measurement : measurements) EXPECT_EQ(measurement.stage, Stage::kScreening);
}

TEST(AutotunerTest, TunerWithoutChoicesEndsAtOnce) {
  EXPECT_TRUE(Autotuner({.grid = {1, 1}}).finished());
  EXPECT_TRUE(Autotuner({.grid = {5}, .max_rounds = 20}).finished()) << "no sample could be finished";
}

TEST(AutotunerTest, ADimensionOfOneValueIsLeftOut) {
  Autotuner tuner({.grid = {1, 2}});
  Search(&tuner, [](const TuningPoint& point) { return point[1] == 1 ? 50.0 : 100.0; });
  EXPECT_THAT(tuner.point(), ElementsAre(0, 1));
}

TEST(AutotunerTest, StagesFollowEachOther) {
  Autotuner tuner({.grid = {3}, .duel_pairs = 1, .final_pairs = 1});
  const auto measurements = Search(&tuner, [](const TuningPoint& point) { return point[0] == 1 ? 50.0 : 100.0; });
  std::vector<std::string> log;
  for (const auto& measurement : measurements) {
    log.push_back(std::to_string(measurement.point[0]) + " " + std::string(Name(measurement.stage)) + " " +
                  std::string(Name(measurement.decision)));
  }
  EXPECT_THAT(log, ElementsAre("0 screening ", "1 screening ", "2 screening ", "0 screening duel", "1 duel ",
                               "0 duel replaced", "1 final ", "0 final replaced"));
  EXPECT_THAT(tuner.point(), ElementsAre(1));
}

TEST(AutotunerTest, AnIncumbentThatLosesTheFinalGivesWayToTheDefaults) {
  Autotuner tuner({.grid = {2}});
  bool final_has_begun = false;
  int wins = 0;
  while (!tuner.finished()) {
    const double advantage = final_has_begun ? 0 : 50;
    const auto measurement = tuner.AddRound(absl::Microseconds(tuner.point()[0] == 1 ? 100.0 - advantage : 100.0));
    if (!measurement || measurement->decision != Decision::kReplaced) continue;
    final_has_begun = true;
    ++wins;
  }
  EXPECT_EQ(wins, 1) << "the duel, not the final";
  EXPECT_THAT(tuner.point(), ElementsAre(0));
}

TEST(AutotunerTest, TheNextBestGetsADuelWhenTheFirstLosesIts) {
  Autotuner tuner({.grid = {3}});
  int sample = 0;
  while (!tuner.finished()) {
    // Value 1 is very fast in the screening, but not in later measurements.
    double time = std::vector<double>{100, 100, 80}[tuner.point()[0]];
    if (sample == 1) time = 10;
    if (tuner.AddRound(absl::Microseconds(time))) ++sample;
  }
  EXPECT_THAT(tuner.point(), ElementsAre(2));
}

TEST(AutotunerTest, ValuesAreComparedWithWhatWasMeasuredNextToThem) {
  Autotuner tuner({.grid = {5}});
  int samples = 0;
  while (!tuner.finished()) {
    // The machine becomes faster after the first value. If the search compared later values with the first measurement,
    // they would all seem better than the first value.
    const auto measurement = tuner.AddRound(absl::Microseconds(samples < 2 ? 100 : 50));
    if (!measurement) continue;
    ++samples;
    EXPECT_NE(measurement->decision, Decision::kDuel);
  }
  EXPECT_THAT(tuner.point(), ElementsAre(0));
}

TEST(AutotunerTest, WarmUpRoundsAreNotMeasured) {
  Autotuner tuner({.grid = {2}, .rounds_per_sample = 2, .warm_up_rounds = 3});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(tuner.AddRound(absl::Hours(1)));
  EXPECT_FALSE(tuner.AddRound(absl::Microseconds(10)));
  const auto measurement = tuner.AddRound(absl::Microseconds(20));
  ASSERT_TRUE(measurement);
  EXPECT_THAT(measurement->sample.microseconds(), ElementsAre(10, 20));
  EXPECT_FALSE(tuner.AddRound(absl::Microseconds(10))) << "the next sample warms up too";
}

TEST(AutotunerTest, ASampleGoesOnAfterAPauseAndWarmsUpAgain) {
  Autotuner tuner({.grid = {2}, .rounds_per_sample = 2, .warm_up_rounds = 1});
  EXPECT_FALSE(tuner.AddRound(absl::Hours(1)));
  EXPECT_FALSE(tuner.AddRound(absl::Microseconds(10)));
  tuner.BeginMeasuring();
  EXPECT_FALSE(tuner.AddRound(absl::Hours(1)));
  const auto measurement = tuner.AddRound(absl::Microseconds(20));
  ASSERT_TRUE(measurement);
  EXPECT_THAT(measurement->sample.microseconds(), ElementsAre(10, 20));
}

TEST(AutotunerTest, EndsAfterTheMostRoundsWhateverHappens) {
  Autotuner tuner({.grid = {9, 9, 9, 9}, .max_rounds = 300});
  // Each measurement is better than the previous one, so only max_rounds ends the search.
  double time = 1e9;
  while (!tuner.finished()) tuner.AddRound(absl::Microseconds(time *= 0.97));
  EXPECT_LE(tuner.rounds(), 300);
  EXPECT_GE(tuner.rounds(), 200) << "and not much earlier";
}

TEST(AutotunerTest, PausesThatUseUpTheRoundsEndInTheDefaults) {
  Autotuner tuner({.grid = {4, 4}, .max_rounds = 600});
  while (!tuner.finished()) {
    tuner.BeginMeasuring();
    EXPECT_FALSE(tuner.AddRound(absl::Microseconds(tuner.point()[0] == 1 ? 1 : 100)));
  }
  EXPECT_EQ(tuner.rounds(), 600);
  EXPECT_THAT(tuner.point(), ElementsAre(0, 0));
}

TEST(AutotunerTest, GivingUpMeansTheDefaults) {
  Autotuner tuner({.grid = {4}});
  while (tuner.point()[0] == 0) tuner.AddRound(absl::Microseconds(1));
  tuner.GiveUp();
  EXPECT_TRUE(tuner.finished());
  EXPECT_THAT(tuner.point(), ElementsAre(0));
}

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

// IsFaster compares the samples of each pair. Otherwise the change in the machine's speed would hide the difference.
TEST(IsFasterTest, AMachineThatSlowsDownBetweenPairsHidesNothing) {
  EXPECT_TRUE(IsFaster({Sample({89, 90, 91}), Sample({178, 180, 182})},
                       {Sample({99, 100, 101}), Sample({198, 200, 202})}, 0.02));
}

}  // namespace
}  // namespace ronda
