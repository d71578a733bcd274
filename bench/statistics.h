#ifndef RONDA_BENCH_STATISTICS_H_
#define RONDA_BENCH_STATISTICS_H_

#include <cstddef>
#include <vector>

namespace ronda::bench {

// The value below which `fraction` of `sorted` lie, interpolated between neighbours.
// REQUIRES: `sorted` ascends and is not empty; 0 <= fraction <= 1.
double Quantile(const std::vector<double>& sorted, double fraction);

// How a quantity was distributed.
struct Summary {
  size_t count = 0;
  double min = 0;
  double p10 = 0;
  double median = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
  double mean = 0;
};

// All zeros if there are no values.
Summary Summarize(std::vector<double> values);

// REQUIRES: not empty.
double Median(std::vector<double> values);

// The median of numerator[i] / denominator[i]: how two contestants that took turns compare, round by round.
// REQUIRES: as many numerators as denominators, at least one, no denominator 0.
double MedianRatio(const std::vector<double>& numerators, const std::vector<double>& denominators);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_STATISTICS_H_
