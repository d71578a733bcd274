#ifndef RONDA_RUNTIME_TUNING_SAMPLE_H_
#define RONDA_RUNTIME_TUNING_SAMPLE_H_

#include <vector>

#include "absl/types/span.h"

namespace ronda {

// How long some rounds under the same settings took. Immutable.
//
// Medians and quartiles, because a machine that does something else now and then makes single rounds arbitrarily long.
class Sample {
 public:
  // REQUIRES: at least one round.
  explicit Sample(std::vector<double> microseconds);

  // Linear between the rounds; `fraction` from 0 (the shortest) to 1 (the longest).
  double Quantile(double fraction) const;

  double lower_quartile() const { return Quantile(0.25); }
  double median() const { return Quantile(0.5); }
  double upper_quartile() const { return Quantile(0.75); }

  // Half the width of an interval that holds the median of all rounds that there could have been, with about 95 %
  // confidence: 1.57 interquartile ranges over the root of the number of rounds (McGill, Tukey and Larsen, Variations
  // of Box Plots, 1978).
  double median_error() const;

  const std::vector<double>& microseconds() const { return microseconds_; }  // ascending

 private:
  std::vector<double> microseconds_;
};

// Whether the challenger is faster than the incumbent by more than noise explains: by at least `min_gain` (0.02: 2 %)
// in each pair of samples, and so that over all pairs the intervals of the two medians do not meet. A pair is what was
// measured one after the other. Rounds are compared within their pair only, so that a machine that becomes slower or
// faster in between favours nobody.
//
// REQUIRES: as many samples of each, at least one.
bool IsFaster(absl::Span<const Sample> challenger, absl::Span<const Sample> incumbent, double min_gain);

}  // namespace ronda

#endif  // RONDA_RUNTIME_TUNING_SAMPLE_H_
