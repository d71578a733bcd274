// SPDX-License-Identifier: Apache-2.0

// Tests the autotuner on simulated machines, with many seeds. The simulated times of rounds vary as on real machines.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/tuning/autotuner.h"

namespace ronda {
namespace {

// Simulates the times of rounds on a busy machine. A time is the value of a surface over the settings, multiplied by
// random disturbances.
//
// The surface is the product of one curve per dimension. The value `curves[d][value]` is 1 for the best value. The
// disturbances are noise, some rounds that take much longer, and long phases in which the whole machine is faster or
// slower.
//
// Thread-compatible.
class SimulatedMachine {
 public:
  struct Options {
    std::vector<std::vector<double>> curves;
    double noise = 0.03;      // the relative deviation of a round's time
    double disturbed = 0.05;  // the share of rounds that take 2 to 12 times as long
    double mode_factor = 1;   // the factor between the machine's two speeds
    int mode_rounds = 300;    // how long it keeps a speed, on average
    absl::Duration best_round = absl::Milliseconds(10);
  };

  SimulatedMachine(Options options, uint32_t seed) : options_(std::move(options)), random_(seed) {}

  // Returns the time of an undisturbed round at `point`, in units of the best time.
  double TimeAt(const TuningPoint& point) const;

  // Returns the time of the next round.
  absl::Duration Round(const TuningPoint& point);

  std::vector<size_t> grid() const;

 private:
  const Options options_;
  std::mt19937 random_;
  bool slow_ = false;
};

namespace {

double Uniform(double from, double to, std::mt19937* random) {
  return std::uniform_real_distribution<double>(from, to)(*random);
}

}  // namespace

double SimulatedMachine::TimeAt(const TuningPoint& point) const {
  double time = 1;
  for (size_t d = 0; d < point.size(); ++d) time *= options_.curves.at(d).at(point[d]);
  return time;
}

absl::Duration SimulatedMachine::Round(const TuningPoint& point) {
  if (Uniform(0, options_.mode_rounds, &random_) < 1) slow_ = !slow_;
  double time = TimeAt(point) * (slow_ ? options_.mode_factor : 1);
  time *= std::max(0.5, std::normal_distribution<double>(1, options_.noise)(random_));
  if (Uniform(0, 1, &random_) < options_.disturbed) time *= Uniform(2, 12, &random_);
  return time * options_.best_round;
}

std::vector<size_t> SimulatedMachine::grid() const {
  std::vector<size_t> grid;
  for (const auto& curve : options_.curves) grid.push_back(curve.size());
  return grid;
}

// Returns curves for `dimensions` dimensions with 2 to 6 values each. A curve may have a single minimum or a plateau,
// or be flat. The worst value of a curve is up to `depth` times as slow as the best. The default may be any value of
// the curve.
std::vector<std::vector<double>> RandomCurves(size_t dimensions, double depth, std::mt19937* random) {
  std::vector<std::vector<double>> curves(dimensions);
  for (std::vector<double>& curve : curves) {
    curve.resize(std::uniform_int_distribution<size_t>(2, 6)(*random));
    const double best = std::uniform_int_distribution<int>(0, static_cast<int>(curve.size()) - 1)(*random);
    // Outside a plateau around the best value, the logarithm of the time grows by `slope` per step.
    const double slope = Uniform(0, 2, random) < 0.5 ? 0 : Uniform(0, std::log(depth), random) / 5;
    const double plateau = std::uniform_int_distribution<int>(0, 2)(*random);
    for (size_t value = 0; value < curve.size(); ++value) {
      const double distance = std::max(0.0, std::abs(static_cast<double>(value) - best) - plateau);
      curve[value] = std::exp(slope * distance);
    }
    // The first value of a curve is the default. Because of the shuffle, this can be any of its values.
    std::shuffle(curve.begin(), curve.end(), *random);
  }
  return curves;
}

constexpr uint32_t kSeeds = 300;

// The result of one search.
struct Outcome {
  uint32_t seed = 0;
  double defaults = 1;  // the time of a round, in units of the best possible time
  double choice = 1;
  bool kept = true;  // the defaults were chosen
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

// Runs a search for each seed, each on its own surface.
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

// If the defaults are the best values, the search chooses them.
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

// The best value of one dimension depends on the other dimension. For example, large chunks are faster only with large
// buckets.
TEST(AutotunerSimulationTest, DimensionsThatDependOnEachOtherAreGoneThroughAgain) {
  const std::vector<std::vector<double>> times = {{100, 95, 110}, {110, 80, 60}, {120, 90, 50}};
  Autotuner tuner({.grid = {3, 3}});
  while (!tuner.finished()) tuner.AddRound(absl::Milliseconds(times[tuner.point()[0]][tuner.point()[1]]));
  EXPECT_EQ(times[tuner.point()[0]][tuner.point()[1]], 50);
}

}  // namespace
}  // namespace ronda
