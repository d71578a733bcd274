#include "bench/report/palette.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_format.h"

namespace ronda::bench {

namespace {

constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};

}  // namespace

std::string ColorOf(size_t index) { return kColors[index % std::size(kColors)]; }

Dash DashOf(size_t index) {
  constexpr Dash kDashes[] = {Dash::kSolid, Dash::kLong, Dash::kDots, Dash::kLongAndDots};
  return kDashes[index / std::size(kColors) % std::size(kDashes)];
}

std::pair<double, double> Extremes(const HeatMap& map) {
  std::pair<double, double> extremes = {std::numeric_limits<double>::infinity(),
                                        -std::numeric_limits<double>::infinity()};
  for (const std::vector<double>& row : map.values) {
    for (double value : row) {
      if (!std::isfinite(value)) continue;
      extremes.first = std::min(extremes.first, value);
      extremes.second = std::max(extremes.second, value);
    }
  }
  return extremes;
}

double HeatOf(double value, double least, double most) {
  return std::isfinite(value) && most > least ? (value - least) / (most - least) : 0;
}

std::string HeatColor(double heat) {
  constexpr double kLight[] = {232, 244, 250};
  constexpr double kDark[] = {0, 72, 120};
  int color[3];
  for (int i = 0; i < 3; ++i) color[i] = static_cast<int>(std::lround(kLight[i] + heat * (kDark[i] - kLight[i])));
  return absl::StrFormat("#%02x%02x%02x", color[0], color[1], color[2]);
}

double TotalOf(const StackedBars::Bar& bar) {
  double total = 0;
  for (double part : bar.parts) total += std::max(0.0, part);
  return total;
}

}  // namespace ronda::bench
