#include "tests/runtime/tuning/simulated_machine.h"

#include <algorithm>
#include <cmath>

namespace ronda::testing {
namespace {

double Uniform(double from, double to, std::mt19937* random) {
  return std::uniform_real_distribution<double>(from, to)(*random);
}

}  // namespace

double SimulatedMachine::TimeAt(const TuningPoint& point) const {
  double time = 1;
  for (size_t d = 0; d < point.size(); ++d) time *= options_.curves.at(d).at(point[d]);
  return time;
}

absl::Duration SimulatedMachine::Round(const TuningPoint& point) {
  if (Uniform(0, options_.mode_rounds, &random_) < 1) slow_ = !slow_;
  double time = TimeAt(point) * (slow_ ? options_.mode_factor : 1);
  time *= std::max(0.5, std::normal_distribution<double>(1, options_.noise)(random_));
  if (Uniform(0, 1, &random_) < options_.disturbed) time *= Uniform(2, 12, &random_);
  return time * options_.best_round;
}

std::vector<size_t> SimulatedMachine::grid() const {
  std::vector<size_t> grid;
  for (const auto& curve : options_.curves) grid.push_back(curve.size());
  return grid;
}

std::vector<std::vector<double>> RandomCurves(size_t dimensions, double depth, std::mt19937* random) {
  std::vector<std::vector<double>> curves(dimensions);
  for (std::vector<double>& curve : curves) {
    curve.resize(std::uniform_int_distribution<size_t>(2, 6)(*random));
    const double best = std::uniform_int_distribution<int>(0, static_cast<int>(curve.size()) - 1)(*random);
    // The logarithm of the time grows by `slope` a step, outside of a plateau around the best value.
    const double slope = Uniform(0, 2, random) < 0.5 ? 0 : Uniform(0, std::log(depth), random) / 5;
    const double plateau = std::uniform_int_distribution<int>(0, 2)(*random);
    for (size_t value = 0; value < curve.size(); ++value) {
      const double distance = std::max(0.0, std::abs(static_cast<double>(value) - best) - plateau);
      curve[value] = std::exp(slope * distance);
    }
    // The default is the first, and may be any.
    std::shuffle(curve.begin(), curve.end(), *random);
  }
  return curves;
}

}  // namespace ronda::testing
