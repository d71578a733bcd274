// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_STEP_STEP_OPTIONS_H_
#define RONDA_BENCH_STEP_STEP_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/harness/arguments.h"
#include "bench/harness/job.h"
#include "bench/harness/model_shapes.h"
#include "bench/step/step_loop.h"
#include "runtime/base/types.h"

namespace ronda::bench {

enum class ScheduleLocking { kOn, kOff };

constexpr const char* Name(ScheduleLocking locking) { return locking == ScheduleLocking::kOn ? "on" : "off"; }

// The settings of Ronda in a measurement of training steps.
struct Setting {
  size_t fusion_threshold = size_t{64} << 20;  // bytes of a bucket; 0: no fusion
  WireFormat wire = WireFormat::kNone;
  absl::Duration cycle_time = absl::ZeroDuration();
  std::string backend = kShm;
  ScheduleLocking locking = ScheduleLocking::kOn;
};

// Formats a setting as text, such as "ronda fusion=64 MiB wire=fp16 cycle=0 shm lock=on".
std::string Name(const Setting& setting);

// The values to try for each setting; a sweep measures all combinations.
struct Sweep {
  std::vector<size_t> fusion_thresholds = {size_t{64} << 20};
  std::vector<WireFormat> wires = {WireFormat::kNone};
  std::vector<absl::Duration> cycle_times = {absl::ZeroDuration()};
  std::vector<std::string> backends = {kShm};
  std::vector<ScheduleLocking> lockings = {ScheduleLocking::kOn};
};

// Returns all combinations in the order of nested loops over the fields of Sweep. The last field is the innermost loop.
std::vector<Setting> AllSettings(const Sweep& sweep);

// Returns the size of one step's gradients in the wire format: the number of bytes that one rank contributes.
int64_t WireBytes(const ModelShapes& model, WireFormat wire);

// The options of ronda-bench step.
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

// Returns the flags of `ronda-bench step`. They write to `options`, which must outlive them.
Flags StepFlags(StepOptions* options);

// Returns the models that the options name. Errors: those of PresetShapes() and ReadShapes().
absl::StatusOr<std::vector<ModelShapes>> ModelsOf(const StepOptions& options);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_STEP_OPTIONS_H_
