#include "bench/report/scale.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_format.h"
#include "bench/arguments.h"

namespace ronda::bench {
namespace {

// 1, 2 or 5 times a power of ten: the least that is not below `number`.
double RoundUp(double number) {
  const double power = std::pow(10, std::floor(std::log10(number)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= number * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

Scale::Scale(Axis axis, const std::vector<double>& numbers) : axis_(axis) {
  double low = axis == Axis::kLinear ? 0 : std::numeric_limits<double>::infinity();
  double high = 0;
  for (double number : numbers) {
    if (!std::isfinite(number) || (axis != Axis::kLinear && number <= 0)) continue;
    low = std::min(low, number);
    high = std::max(high, number);
  }
  if (axis == Axis::kLinear) {
    low_ = low;
    high_ = high > low ? high : low + 1;
    return;
  }
  if (high == 0) low = high = 1;
  const double base = axis == Axis::kLogarithmic ? 10 : 4;
  low_ = std::pow(base, std::floor(std::log(low) / std::log(base) + 1e-9));
  high_ = std::pow(base, std::ceil(std::log(high) / std::log(base) - 1e-9));
  if (high_ <= low_) high_ = low_ * base;
}

double Scale::Place(double number) const {
  if (axis_ == Axis::kLinear) return (number - low_) / (high_ - low_);
  if (!(number > low_)) return 0;
  return std::log(number / low_) / std::log(high_ / low_);
}

std::vector<double> Scale::TickNumbers() const {
  constexpr double kIntervals = 6;
  std::vector<double> numbers;
  if (axis_ == Axis::kLinear) {
    const double step = RoundUp((high_ - low_) / kIntervals);
    for (double i = std::ceil(low_ / step); i * step <= high_ * (1 + 1e-9); ++i) numbers.push_back(i * step);
    return numbers;
  }
  const double base = axis_ == Axis::kLogarithmic ? 10 : 4;
  const double powers = std::round(std::log(high_ / low_) / std::log(base));
  const double each = std::max(1.0, std::ceil(powers / (2 * kIntervals)));
  for (double i = 0; i <= powers; i += each) numbers.push_back(low_ * std::pow(base, i));
  return numbers;
}

std::vector<Scale::Tick> Scale::Ticks() const {
  std::vector<Tick> ticks;
  for (double number : TickNumbers()) {
    const bool is_bytes = axis_ == Axis::kLogarithmicBytes;
    ticks.push_back({number, is_bytes ? FormatSize(static_cast<size_t>(std::llround(number))) : Short(number)});
  }
  return ticks;
}

std::string Short(double number) {
  constexpr double kLeastWithExponent = 1e6;
  return absl::StrFormat(std::abs(number) >= 1000 && std::abs(number) < kLeastWithExponent ? "%.0f" : "%.3g", number);
}

}  // namespace ronda::bench
