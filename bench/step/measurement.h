#ifndef RONDA_BENCH_STEP_MEASUREMENT_H_
#define RONDA_BENCH_STEP_MEASUREMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/step/contestants.h"
#include "bench/step/figures.h"
#include "bench/step/settings.h"
#include "bench/team.h"

namespace ronda::bench {

// What a contestant's turns have come to, on the slowest rank.
struct Measured {
  std::string name;
  std::optional<Setting> setting;  // of Ronda's
  Rounds steps;
  int64_t control_messages = 0;  // of all ranks, in all of its timed steps
  int64_t wrong = 0;             // elements, of all ranks; looked at in the first turn
};

struct MeasurementOptions {
  int rounds = 5;
  std::function<void(const std::string& contestant)> on_turn;  // is called before each turn
};

// Has the contestants take turns, `rounds` times. Every rank calls it with the same contestants and gets the same
// answer, in their order. Throws ronda::Error.
std::vector<Measured> Measure(const std::vector<std::unique_ptr<Contestant>>& contestants,
                              const MeasurementOptions& options, Team* team);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_MEASUREMENT_H_
