#ifndef RONDA_TESTS_RUNTIME_TUNING_SIMULATED_MACHINE_H_
#define RONDA_TESTS_RUNTIME_TUNING_SIMULATED_MACHINE_H_

#include <cstdint>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "runtime/tuning/autotuner.h"

namespace ronda::testing {

// What rounds take on a machine that is not quiet: a surface over the settings, times what the machine does.
//
// The surface is a product of one curve a dimension: `curves[d][value]`, 1 for the best value. Around it there is
// noise, some rounds are disturbed by something else and take much longer, and the whole machine changes its speed by a
// factor now and then, for long times.
//
// Thread-compatible.
class SimulatedMachine {
 public:
  struct Options {
    std::vector<std::vector<double>> curves;
    double noise = 0.03;      // the deviation of a round's time, relative
    double disturbed = 0.05;  // the share of rounds that take 2 to 12 times as long
    double mode_factor = 1;   // between the two speeds of the machine
    int mode_rounds = 300;    // how long it keeps one, on average
    absl::Duration best_round = absl::Milliseconds(10);
  };

  SimulatedMachine(Options options, uint32_t seed) : options_(std::move(options)), random_(seed) {}

  // What a round takes at `point` where nothing disturbs, in units of the best one.
  double TimeAt(const TuningPoint& point) const;

  // The time of the next round.
  absl::Duration Round(const TuningPoint& point);

  std::vector<size_t> grid() const;

 private:
  const Options options_;
  std::mt19937 random_;
  bool slow_ = false;
};

// Curves of `dimensions` dimensions with 2 to 6 values each: single valleys, plateaus and flat ones, whose worst values
// are up to `depth` times as slow as the best. The default is anywhere.
std::vector<std::vector<double>> RandomCurves(size_t dimensions, double depth, std::mt19937* random);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_TUNING_SIMULATED_MACHINE_H_
