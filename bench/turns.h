#ifndef RONDA_BENCH_TURNS_H_
#define RONDA_BENCH_TURNS_H_

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "bench/team.h"

namespace ronda::bench {

struct TurnOptions {
  int rounds = 9;                                      // in each of which every contestant has one block
  absl::Duration block_time = absl::Milliseconds(20);  // that a block lasts, roughly
  int max_iterations = 2000;                           // in a block
};

// What one contestant took.
struct Turns {
  std::vector<double> microseconds;  // an iteration, one number a round: that of the block's slowest rank
  int iterations = 0;                // in a block
};

// How many iterations last for `block_time`: at least 2, so that none follows only others' work.
int IterationsFor(double seconds_each, const TurnOptions& options);

// A contestant carries out so many iterations, and returns the seconds that they took on this rank.
using Block = std::function<double(int iterations)>;

// Times what contestants do, in turns: in each round one block of equally many iterations each, between barriers, after
// a round that warms up. So whatever the machine does meanwhile befalls all of them. The same on every rank.
std::vector<Turns> TakeTurns(const std::vector<Block>& contestants, const TurnOptions& options, Team* team);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_TURNS_H_
