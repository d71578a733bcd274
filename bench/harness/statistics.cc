// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

namespace ronda::bench {
namespace {

constexpr double kBinsPerDoubling = 4;

int BinOf(double value) { return static_cast<int>(std::floor(kBinsPerDoubling * std::log2(value))); }
double BeginOf(int bin) { return std::exp2(bin / kBinsPerDoubling); }

}  // namespace

double Quantile(const std::vector<double>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
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
          .max = values.back()};
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

void Histogram::Add(double value) {
  const int bin = BinOf(value);
  if (counts_.empty()) first_ = bin;
  if (bin < first_) {
    counts_.insert(counts_.begin(), static_cast<size_t>(first_ - bin), 0);
    first_ = bin;
  }
  const auto index = static_cast<size_t>(bin - first_);
  if (index >= counts_.size()) counts_.resize(index + 1);
  ++counts_[index];
  ++total_;
}

std::vector<Histogram::Bin> Histogram::Bins() const {
  std::vector<Bin> bins;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const int bin = first_ + static_cast<int>(i);
    bins.push_back({.begin = BeginOf(bin), .end = BeginOf(bin + 1), .count = counts_[i]});
  }
  return bins;
}

std::string Histogram::Text() const {
  constexpr double kLongestBar = 50;
  int64_t largest = 1;
  for (const int64_t count : counts_) largest = std::max(largest, count);
  std::string text;
  bool follows_gap = false;
  for (const Bin& bin : Bins()) {
    if (bin.count == 0) {
      text += follows_gap ? "" : "  ...\n";
      follows_gap = true;
      continue;
    }
    follows_gap = false;
    const auto count = static_cast<double>(bin.count);
    const auto length = static_cast<size_t>(std::ceil(kLongestBar * count / static_cast<double>(largest)));
    absl::StrAppendFormat(&text, "  %9.2f - %9.2f %9d %6.2f %% %s\n", bin.begin, bin.end, bin.count,
                          100 * count / static_cast<double>(total_), std::string(length, '#'));
  }
  return text;
}

}  // namespace ronda::bench
