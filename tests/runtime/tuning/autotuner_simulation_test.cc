// The autotuner on simulated machines that disturb it as real ones do, over many seeds.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/tuning/autotuner.h"
#include "tests/runtime/tuning/simulated_machine.h"

namespace ronda {
namespace {

using ::ronda::testing::RandomCurves;
using ::ronda::testing::SimulatedMachine;

constexpr uint32_t kSeeds = 300;

// What came of one search.
struct Outcome {
  uint32_t seed = 0;
  double defaults = 1;  // the time of a round, in units of the best one that there is
  double choice = 1;
  bool kept = true;  // the choice is the defaults
  int rounds = 0;
};

Outcome Tune(SimulatedMachine machine, uint32_t seed) {
  Autotuner tuner({.grid = machine.grid()});
  while (!tuner.finished()) tuner.AddRound(machine.Round(tuner.point()));
  const TuningPoint defaults(machine.grid().size(), 0);
  return {.seed = seed,
          .defaults = machine.TimeAt(defaults),
          .choice = machine.TimeAt(tuner.point()),
          .kept = tuner.point() == defaults,
          .rounds = tuner.rounds()};
}

// A search for each seed, on surfaces of its own.
std::vector<Outcome> TuneAll(SimulatedMachine::Options options, double depth) {
  std::vector<Outcome> outcomes;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(seed);
    options.curves = RandomCurves(4, depth, &random);
    outcomes.push_back(Tune(SimulatedMachine(options, seed), seed));
  }
  return outcomes;
}

double Quantile(const std::vector<Outcome>& outcomes, double fraction, double (*value)(const Outcome&)) {
  std::vector<double> values;
  for (const Outcome& outcome : outcomes) values.push_back(value(outcome));
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

double Choice(const Outcome& outcome) { return outcome.choice; }
double Defaults(const Outcome& outcome) { return outcome.defaults; }

void Print(const std::string& name, const std::vector<Outcome>& outcomes) {
  std::cout << name << ", seeds 1 to " << outcomes.size() << ", in units of the best: defaults median "
            << Quantile(outcomes, 0.5, Defaults) << ", 90 % " << Quantile(outcomes, 0.9, Defaults) << "; choice median "
            << Quantile(outcomes, 0.5, Choice) << ", 90 % " << Quantile(outcomes, 0.9, Choice) << ", worst "
            << Quantile(outcomes, 1, Choice) << "\n";
}

void ExpectNeverWorseThanDefaults(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_LE(outcome.choice, outcome.defaults * 1.001) << "seed " << outcome.seed;
    EXPECT_LE(outcome.rounds, 600) << "seed " << outcome.seed;
  }
}

TEST(AutotunerSimulationTest, FindsTheOptimumOnAQuietMachine) {
  const auto outcomes = TuneAll({.noise = 0.005, .disturbed = 0}, 3);
  Print("quiet", outcomes);
  ExpectNeverWorseThanDefaults(outcomes);
  EXPECT_LE(Quantile(outcomes, 0.9, Choice), 1.03);
}

TEST(AutotunerSimulationTest, ComesCloseOnANoisyMachine) {
  const auto outcomes = TuneAll({.noise = 0.05, .disturbed = 0.1}, 3);
  Print("noisy", outcomes);
  ExpectNeverWorseThanDefaults(outcomes);
  EXPECT_LE(Quantile(outcomes, 0.5, Choice), 1.05);
  EXPECT_LE(Quantile(outcomes, 0.9, Choice), 1.15);
}

TEST(AutotunerSimulationTest, AMachineOfTwoSpeedsDoesNotMisleadIt) {
  const auto outcomes = TuneAll({.noise = 0.03, .mode_factor = 2, .mode_rounds = 200}, 3);
  Print("two speeds", outcomes);
  ExpectNeverWorseThanDefaults(outcomes);
  EXPECT_LE(Quantile(outcomes, 0.5, Choice), 1.05);
  EXPECT_LE(Quantile(outcomes, 0.9, Choice), 1.25);
}

TEST(AutotunerSimulationTest, NoiseAloneIsNoReasonToChange) {
  const auto outcomes = TuneAll({.noise = 0.2, .disturbed = 0.1, .mode_factor = 2, .mode_rounds = 100}, 1);
  const auto changed = std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return !o.kept; });
  std::cout << "nothing but noise, seeds 1 to " << outcomes.size() << ": " << changed << " choose something else\n";
  EXPECT_LE(changed, 3);
}

// In dimensions where the defaults are the best, they are what is chosen.
TEST(AutotunerSimulationTest, TheBestDefaultsAreKept) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(seed);
    SimulatedMachine::Options options{.noise = 0.05, .mode_factor = 2, .mode_rounds = 200};
    options.curves = RandomCurves(4, 3, &random);
    for (std::vector<double>& curve : options.curves) std::sort(curve.begin(), curve.end());
    const Outcome outcome = Tune(SimulatedMachine(options, seed), seed);
    EXPECT_LE(outcome.choice, outcome.defaults * 1.001) << "seed " << seed;
  }
}

// The best of one dimension depends on the other: large chunks pay with large buckets only.
TEST(AutotunerSimulationTest, DimensionsThatDependOnEachOtherAreGoneThroughAgain) {
  const std::vector<std::vector<double>> times = {{100, 95, 110}, {110, 80, 60}, {120, 90, 50}};
  Autotuner tuner({.grid = {3, 3}});
  while (!tuner.finished()) tuner.AddRound(absl::Milliseconds(times[tuner.point()[0]][tuner.point()[1]]));
  EXPECT_EQ(times[tuner.point()[0]][tuner.point()[1]], 50);
}

}  // namespace
}  // namespace ronda
