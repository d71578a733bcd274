#include "bench/latency/histogram.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace ronda::bench {
namespace {

constexpr double kStepsPerDoubling = 4;

int StepOf(double value) { return static_cast<int>(std::floor(kStepsPerDoubling * std::log2(value))); }
double BeginOf(int step) { return std::exp2(step / kStepsPerDoubling); }

}  // namespace

void Histogram::Add(double value) {
  const int step = StepOf(value);
  if (counts_.empty()) first_ = step;
  if (step < first_) {
    counts_.insert(counts_.begin(), static_cast<size_t>(first_ - step), 0);
    first_ = step;
  }
  const auto place = static_cast<size_t>(step - first_);
  if (place >= counts_.size()) counts_.resize(place + 1);
  ++counts_[place];
  ++total_;
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const int step = first_ + static_cast<int>(i);
    buckets.push_back({.begin = BeginOf(step), .end = BeginOf(step + 1), .count = counts_[i]});
  }
  return buckets;
}

std::string Histogram::Text() const {
  constexpr size_t kBar = 50;
  int64_t largest = 1;
  for (const int64_t count : counts_) largest = std::max(largest, count);
  std::string text;
  bool follows_gap = false;
  for (const Bucket& bucket : Buckets()) {
    if (bucket.count == 0) {
      text += follows_gap ? "" : "  ...\n";
      follows_gap = true;
      continue;
    }
    follows_gap = false;
    const auto length =
        static_cast<size_t>(std::ceil(kBar * static_cast<double>(bucket.count) / static_cast<double>(largest)));
    absl::StrAppendFormat(&text, "  %9.2f - %9.2f %9d %6.2f %% %s\n", bucket.begin, bucket.end, bucket.count,
                          100.0 * static_cast<double>(bucket.count) / static_cast<double>(total_),
                          std::string(length, '#'));
  }
  return text;
}

}  // namespace ronda::bench
