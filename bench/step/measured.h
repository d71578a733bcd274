#ifndef RONDA_BENCH_STEP_MEASURED_H_
#define RONDA_BENCH_STEP_MEASURED_H_

#include <cstdint>
#include <optional>
#include <string>

#include "bench/step/figures.h"
#include "bench/step/settings.h"

namespace ronda::bench {

// What a contestant's turns have come to, on the slowest rank.
struct Measured {
  std::string name;
  std::optional<Setting> setting;  // of Ronda's
  Rounds steps;
  int64_t control_messages = 0;  // of all ranks, in all of its timed steps
  int64_t wrong = 0;             // elements, of all ranks; looked at in the first turn
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_MEASURED_H_
