// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_STATISTICS_H_
#define RONDA_BENCH_HARNESS_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ronda::bench {

// Returns the quantile of `sorted` at `fraction`, interpolated between neighbouring values. REQUIRES: `sorted` is in
// ascending order and not empty; 0 <= fraction <= 1.
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

// Returns the distribution of `values`; all fields are 0 if `values` is empty.
Summary Summarize(std::vector<double> values);

// REQUIRES: `values` is not empty.
double Median(std::vector<double> values);

// Returns the median of numerator[i] / denominator[i], which compares two implementations that ran in turn, round by
// round. REQUIRES: the lists have the same length and are not empty; no denominator is 0.
double MedianRatio(const std::vector<double>& numerators, const std::vector<double>& denominators);

// Counts values in bins. There are four bins per doubling of the value, so bins for larger values are wider.
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

  // Returns the bins in ascending order, from the first to the last that is not empty, including empty bins in between.
  std::vector<Bin> Bins() const;

  // Returns a line for each bin that is not empty. The line shows the bin's limits, its count, its share of all values,
  // and a bar whose length shows that share. "..." stands for empty bins.
  std::string Text() const;

 private:
  std::vector<int64_t> counts_;
  int first_ = 0;  // the number of the bin of counts_[0]
  int64_t total_ = 0;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_STATISTICS_H_
