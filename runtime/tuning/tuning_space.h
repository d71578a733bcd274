#ifndef RONDA_RUNTIME_TUNING_TUNING_SPACE_H_
#define RONDA_RUNTIME_TUNING_TUNING_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/tuning/autotuner.h"

namespace ronda {

// The settings of a job that the autotuner may change.
struct TunedSettings {
  size_t fusion_threshold = 0;  // bytes of a bucket
  size_t min_bucket_bytes = 0;  // from which on a bucket of the locked schedule waits for nobody
  size_t chunk_bytes = 0;       // in which collectives cut their data; 0: the backend's own choice
  absl::Duration cycle_time;    // longest time a tensor may wait for others to be fused with

  friend bool operator==(const TunedSettings&, const TunedSettings&) = default;
};

// "fusion threshold 4194304 bytes, ..."
std::string Describe(const TunedSettings& settings);

// Which settings there are to choose from: a few values for each, a factor of four or so apart, and the defaults.
//
// Immutable.
class TuningSpace {
 public:
  // Point 0 is `defaults`: what the user has set, or Ronda's own.
  explicit TuningSpace(const TunedSettings& defaults);

  // For Autotuner::Options.
  std::vector<size_t> grid() const;

  // REQUIRES: `point` is in the grid.
  TunedSettings At(const TuningPoint& point) const;

 private:
  std::vector<std::vector<int64_t>> values_;  // of each dimension; the default first
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TUNING_TUNING_SPACE_H_
