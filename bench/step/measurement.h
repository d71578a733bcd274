#ifndef RONDA_BENCH_STEP_MEASUREMENT_H_
#define RONDA_BENCH_STEP_MEASUREMENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/step/contestants.h"
#include "bench/step/measured.h"
#include "bench/team.h"

namespace ronda::bench {

struct MeasurementOptions {
  int rounds = 5;
  std::function<void(const std::string& contestant)> on_turn;  // is called before each turn
};

// Has the contestants take turns, `rounds` times. Every rank calls it with the same contestants and gets the same
// answer, in their order. Throws ronda::Error.
std::vector<Measured> Measure(const std::vector<std::unique_ptr<StepContestant>>& contestants,
                              const MeasurementOptions& options, Team* team);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_MEASUREMENT_H_
