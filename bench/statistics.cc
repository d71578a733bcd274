#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace ronda::bench {

double Quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = place - static_cast<double>(below);
  return sorted[below] + weight * (sorted[above] - sorted[below]);
}

Summary Summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {.count = values.size(),
          .min = values.front(),
          .p10 = Quantile(values, 0.1),
          .median = Quantile(values, 0.5),
          .p90 = Quantile(values, 0.9),
          .p99 = Quantile(values, 0.99),
          .max = values.back(),
          .mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size())};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return Quantile(values, 0.5);
}

double MedianRatio(const std::vector<double>& numerators, const std::vector<double>& denominators) {
  std::vector<double> ratios;
  ratios.reserve(numerators.size());
  for (size_t i = 0; i < numerators.size(); ++i) ratios.push_back(numerators[i] / denominators[i]);
  return Median(std::move(ratios));
}

}  // namespace ronda::bench
