// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_STATISTICS_H_
#define RONDA_BENCH_HARNESS_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ronda::bench {

// Returns the value below which the fraction `fraction` of `sorted` lies, interpolated between neighbours. REQUIRES:
// `sorted` ascends and is not empty; 0 <= fraction <= 1.
double Quantile(const std::vector<double>& sorted, double fraction);

// The distribution of a quantity.
struct Summary {
  size_t count = 0;
  double min = 0;
  double p10 = 0;
  double median = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// Returns the distribution of `values`; all its fields are 0 if there are no values.
Summary Summarize(std::vector<double> values);

// REQUIRES: `values` is not empty.
double Median(std::vector<double> values);

// Returns the median of numerator[i] / denominator[i]: compares, round by round, two implementations that ran in turns.
// REQUIRES: as many numerators as denominators, at least one; no denominator is 0.
double MedianRatio(const std::vector<double>& numerators, const std::vector<double>& denominators);

// Counts values in bins. The histogram has four bins per doubling of the value, so bins for larger values are wider.
// Thread-compatible.
class Histogram {
 public:
  struct Bin {
    double begin = 0;  // its smallest value; it ends where the next bin begins
    double end = 0;
    int64_t count = 0;
  };

  // REQUIRES: value > 0.
  void Add(double value);

  // Returns all bins from the first to the last one that is not empty, ascending, with the empty bins between them.
  std::vector<Bin> Bins() const;

  // Returns a line for each bin that is not empty. The line has the bin's limits, its count, its share of all values,
  // and a bar whose length shows the share. "..." stands for empty bins.
  std::string Text() const;

 private:
  std::vector<int64_t> counts_;
  int first_ = 0;  // the number of the bin of counts_[0]
  int64_t total_ = 0;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_STATISTICS_H_
