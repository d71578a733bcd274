#ifndef RONDA_BENCH_ADVISE_PROFILE_H_
#define RONDA_BENCH_ADVISE_PROFILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/model/training_step.h"

namespace ronda::bench {

// The steps of a training program on one rank, which has nobody to communicate with.
struct Profile {
  // In the order in which they are submitted. `ready` is a fraction of the whole step, which ends with the last one.
  std::vector<model::Gradient> gradients;
  std::vector<double> steps;  // s of each, ascending, without what the rank waited for its own allreduces
  int votes = 0;              // small allreduces of a step that are no gradients, one after the other: of "stop?"

  double median() const;
  double mean() const;
  double bytes() const;  // of all gradients

  // The median of the slowest of `ranks` ranks whose steps vary as these do, each for itself: the quantile
  // 0.5^(1/ranks).
  double SlowestOf(int ranks) const;
};

// Learns the steps from a timeline (docs/timeline.md) of a program that ran on one rank. The gradients are the tensors
// of a floating-point dtype that are reduced in more than half of the steps, and a step begins after the last of them.
// The first quarter of the steps, but 10 at most, does not count.
//
// Errors: INVALID_ARGUMENT that says what the timeline lacks, if it has fewer than 10 steps that count.
absl::StatusOr<Profile> ProfileOf(absl::string_view timeline);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ADVISE_PROFILE_H_
