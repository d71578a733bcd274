// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_TUNING_AUTOTUNER_H_
#define RONDA_RUNTIME_TUNING_AUTOTUNER_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace ronda {

// The times of several rounds under the same settings. Immutable.
//
// Uses medians and quartiles, because a single round can take very long while the machine is busy with something else.
class Sample {
 public:
  // REQUIRES: at least one round.
  explicit Sample(std::vector<double> microseconds);

  // Returns a quantile of the round times, from `fraction` 0 (the shortest round) to 1 (the longest), with linear
  // interpolation between rounds.
  double Quantile(double fraction) const;

  double lower_quartile() const { return Quantile(0.25); }
  double median() const { return Quantile(0.5); }
  double upper_quartile() const { return Quantile(0.75); }

  // Returns half the width of a 95 % confidence interval of the median: 1.57 times the interquartile range, divided by
  // the square root of the number of rounds (McGill, Tukey and Larsen, Variations of Box Plots, 1978).
  double median_error() const;

  const std::vector<double>& microseconds() const { return microseconds_; }  // ascending

 private:
  std::vector<double> microseconds_;
};

// Returns whether the challenger is faster than the incumbent by more than the measurement noise: by at least
// `min_gain` (0.02 for 2 %) in each pair of samples, and with confidence intervals of the two medians over all pairs
// that do not overlap. The samples of a pair were measured one after the other, and rounds are compared only within a
// pair. So neither side has an advantage if the machine becomes slower or faster between pairs.
//
// REQUIRES: `challenger` and `incumbent` have the same number of samples, at least one.
bool IsFaster(absl::Span<const Sample> challenger, absl::Span<const Sample> incumbent, double min_gain);

// One choice of settings: for each dimension, the index of one of its values. All zeros are the defaults.
using TuningPoint = std::vector<size_t>;

// Searches for settings with shorter rounds than the defaults. Chooses the defaults if it finds none.
//
//   while (!tuner.finished()) {
//     ... apply tuner.point(); tuner.BeginMeasuring(); ...
//     tuner.AddRound(time);  // after every round; point() may have changed afterwards
//   }
//
// The search changes one dimension at a time. A *screening* measures all values of a dimension, interleaved with the
// best settings so far (the incumbent), and compares each value with the adjacent measurement of the incumbent. A value
// that looks better (the challenger) enters a *duel*, which measures it and the incumbent again alternately. The
// challenger replaces the incumbent only if it is faster by more than the noise (IsFaster). When no dimension has a
// better value, or no rounds are left, a *final* duel compares the incumbent with the defaults, which the tuner chooses
// unless the incumbent wins. So it never chooses a value that is not better. Because only adjacent measurements are
// compared, it does not matter if the machine becomes faster or slower for some minutes.
//
// A pure state machine: it uses no clock, threads or random numbers. Thread-compatible.
class Autotuner {
 public:
  struct Options {
    std::vector<size_t> grid;    // the number of values of each dimension, at least 1
    int rounds_per_sample = 10;  // measured rounds, after the warm-up
    int warm_up_rounds = 3;      // rounds that are not measured
    int max_rounds = 600;        // including warm-up; then the search ends
    double min_gain = 0.02;      // fraction of a step's time; a smaller gain is not worth a change
    int duel_pairs = 2;
    int final_pairs = 3;
    int duels_per_dimension = 2;
  };

  enum class Stage { kScreening, kDuel, kFinal };
  // What the tuner decides after a sample.
  enum class Decision {
    kNone,      // the stage continues
    kDuel,      // a screened value looks better: a duel follows
    kKept,      // the incumbent stays
    kReplaced,  // the challenger is the incumbent from now on
  };

  struct Measurement {
    TuningPoint point;
    Sample sample;
    Stage stage;
    Decision decision;
  };

  explicit Autotuner(Options options);

  // Returns the settings to apply in the next round. When the search has finished, returns the chosen settings.
  const TuningPoint& point() const { return finished_ ? incumbent_ : plan_[samples_.size()]; }

  // Returns whether the search has ended.
  bool finished() const { return finished_; }

  // Records that point() applies from now on, possibly again after a pause. The next rounds are a warm-up, which is not
  // measured.
  void BeginMeasuring() { warm_up_left_ = options_.warm_up_rounds; }

  // Records that a round with the settings of point() took `time`. Returns the sample if this round completes it.
  // REQUIRES: not finished.
  std::optional<Measurement> AddRound(absl::Duration time);

  // Ends the search with the defaults.
  void GiveUp() { Finish(defaults()); }

  int rounds() const { return rounds_; }

 private:
  // A value of the dimension that is being screened.
  struct Candidate {
    TuningPoint point;
    size_t sample;     // index in samples_
    size_t reference;  // index of the adjacent sample of the incumbent
  };

  TuningPoint defaults() const { return TuningPoint(options_.grid.size(), 0); }
  bool CanAfford(size_t samples) const;
  Decision ConcludeStage();
  Decision ConcludeScreening();
  Decision ConcludeDuel();
  Decision ConcludeFinal();
  void PlanScreening();
  void PlanDuel(const TuningPoint& first, const TuningPoint& second, int pairs);
  bool ChallengerWins() const;
  Decision NextDuel();
  void NextDimension();
  void BeginFinal();
  void Finish(TuningPoint choice);

  const Options options_;
  TuningPoint incumbent_;
  bool finished_ = false;
  int rounds_ = 0;
  int warm_up_left_ = 0;
  std::vector<double> microseconds_;  // of the current sample
  Stage stage_ = Stage::kScreening;
  std::vector<TuningPoint> plan_;  // the points to measure in this stage, in order
  std::vector<Sample> samples_;    // of this stage, so far
  size_t dimension_ = 0;           // being screened, or in a duel
  size_t settled_ = 0;             // how many consecutive dimensions had no better value
  std::vector<Candidate> candidates_;
  std::vector<TuningPoint> challengers_;  // still waiting for their duel, the best last
};

absl::string_view Name(Autotuner::Stage stage);
absl::string_view Name(Autotuner::Decision decision);

}  // namespace ronda

#endif  // RONDA_RUNTIME_TUNING_AUTOTUNER_H_
