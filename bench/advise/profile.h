// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_ADVISE_PROFILE_H_
#define RONDA_BENCH_ADVISE_PROFILE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/model/training_step.h"

namespace ronda::bench {

// The steps of a training program that ran on a single rank, without communication.
struct Profile {
  // The gradients in the order of their submission. `ready` is a fraction of the step's length; the step ends with the
  // last gradient.
  std::vector<model::Gradient> gradients;
  std::vector<double> steps;  // s of each, ascending, without the time that the rank waited for its own allreduces
  int votes = 0;              // per step, small allreduces that are no gradients, one after the other, such as "stop?"

  double median() const;
  double mean() const;
  double bytes() const;  // of all gradients

  // Returns the median step time of the slowest of `ranks` ranks, assuming that the step times of each rank are
  // distributed like `steps` and independent of the other ranks. The median of this maximum is the quantile
  // 0.5^(1/ranks) of `steps`.
  double SlowestOf(int ranks) const;
};

// Finds the steps in a timeline (docs/timeline.md) of a program that ran on one rank. The gradients are the tensors of
// a floating-point dtype that are reduced in more than half of the steps. A step begins after the last gradient of the
// previous step. Skips the first quarter of the steps, but at most 10.
//
// Errors: INVALID_ARGUMENT if fewer than 10 usable steps remain; the text says what is missing.
absl::StatusOr<Profile> ProfileOf(absl::string_view timeline);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_ADVISE_PROFILE_H_
