#ifndef RONDA_BENCH_STEP_SETTINGS_H_
#define RONDA_BENCH_STEP_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/backend.h"
#include "bench/shapes/shapes.h"
#include "runtime/base/types.h"

namespace ronda::bench {

enum class ScheduleLocking { kOn, kOff };

const char* Name(ScheduleLocking locking);

// How Ronda is set up while it runs some training steps.
struct Setting {
  size_t fusion_threshold = size_t{64} << 20;  // bytes of a bucket; 0: no fusion
  WireFormat wire = WireFormat::kNone;
  absl::Duration cycle_time = absl::ZeroDuration();
  Backend backend = Backend::kShm;
  ScheduleLocking locking = ScheduleLocking::kOn;
};

// "ronda fusion=64 MiB wire=fp16 cycle=0 shm lock=on"
std::string Name(const Setting& setting);

// The values to try of each dimension; a sweep measures every combination.
struct Sweep {
  std::vector<size_t> fusion_thresholds = {size_t{64} << 20};
  std::vector<WireFormat> wires = {WireFormat::kNone};
  std::vector<absl::Duration> cycle_times = {absl::ZeroDuration()};
  std::vector<Backend> backends = {Backend::kShm};
  std::vector<ScheduleLocking> lockings = {ScheduleLocking::kOn};
};

// In the order of nested loops over the dimensions as they are listed above, the last one innermost.
std::vector<Setting> AllSettings(const Sweep& sweep);

// What the gradients of one step take in the wire's format: what one rank contributes to their sums.
int64_t WireBytes(const ModelShapes& model, WireFormat wire);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STEP_SETTINGS_H_
