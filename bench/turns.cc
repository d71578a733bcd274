#include "bench/turns.h"

#include <algorithm>

namespace ronda::bench {
namespace {

// Seconds of a block, on its slowest rank.
double TimeBlock(const Block& contestant, int iterations, Team* team) {
  team->Barrier();
  return team->Max(contestant(iterations));
}

// A first guess from few iterations, so that a slow contestant is not run often to find out that it is slow.
int Calibrate(const Block& contestant, const TurnOptions& options, Team* team) {
  constexpr int kFew = 3;
  contestant(1);
  const int iterations = IterationsFor(TimeBlock(contestant, kFew, team) / kFew, options);
  // Fast ones were still warming up.
  const int enough = std::min(iterations, 10 * kFew);
  return IterationsFor(TimeBlock(contestant, enough, team) / enough, options);
}

}  // namespace

int IterationsFor(double seconds_each, const TurnOptions& options) {
  const double fitting = absl::ToDoubleSeconds(options.block_time) / std::max(seconds_each, 1e-9);
  return static_cast<int>(std::clamp(fitting, 2.0, static_cast<double>(std::max(2, options.max_iterations))));
}

std::vector<Turns> TakeTurns(const std::vector<Block>& contestants, const TurnOptions& options, Team* team) {
  constexpr double kMicroseconds = 1e6;
  std::vector<Turns> turns(contestants.size());
  for (size_t i = 0; i < contestants.size(); ++i) {
    turns[i].iterations = Calibrate(contestants[i], options, team);
  }
  for (int round = -1; round < options.rounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      const double seconds = TimeBlock(contestants[i], turns[i].iterations, team);
      if (round >= 0) turns[i].microseconds.push_back(kMicroseconds * seconds / turns[i].iterations);
    }
  }
  return turns;
}

}  // namespace ronda::bench
