#ifndef RONDA_BENCH_STEP_STEP_OPTIONS_H_
#define RONDA_BENCH_STEP_STEP_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/arguments.h"
#include "bench/job.h"
#include "bench/shapes/shapes.h"
#include "bench/step/backward.h"
#include "bench/step/settings.h"

namespace ronda::bench {

// What the user asks of ronda-bench step.
struct StepOptions {
  JobOptions job;
  std::vector<std::string> presets = {"resnet50"};
  std::string shapes_file;  // instead of presets; empty: none
  std::vector<absl::Duration> computes = {absl::ZeroDuration()};
  ComputeKind compute_kind = ComputeKind::kSpin;
  Sweep sweep;
  int rounds = 5;
  int steps = 10;
  int warm_up = 8;
};

// The flags of ronda-bench step, which write to `options`; that must outlive them.
Flags StepFlags(StepOptions* options);

// The models that the options name. Errors: those of PresetShapes() and ReadShapes().
absl::StatusOr<std::vector<ModelShapes>> ModelsOf(const StepOptions& options);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_OPTIONS_H_
