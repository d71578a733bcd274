#include "bench/step/figures.h"

#include <algorithm>

#include "bench/statistics.h"

namespace ronda::bench {
namespace {

double MedianOfRounds(const Rounds& rounds) {
  std::vector<double> medians;
  for (const std::vector<double>& round : rounds) medians.push_back(Median(round));
  return Median(medians);
}

std::vector<double> AllSorted(const Rounds& rounds) {
  std::vector<double> all;
  for (const std::vector<double>& round : rounds) all.insert(all.end(), round.begin(), round.end());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

StepFigures FiguresOf(const Rounds& steps, const Rounds& compute_only, Computes computes) {
  const std::vector<double> all = AllSorted(steps);
  const double compute = MedianOfRounds(compute_only);
  StepFigures figures;
  figures.step = MedianOfRounds(steps);
  figures.step_p10 = Quantile(all, 0.1);
  figures.step_p90 = Quantile(all, 0.9);
  figures.exposed = figures.step - compute;
  if (computes == Computes::kSomething) figures.efficiency = compute / figures.step;
  return figures;
}

double RatioOf(const Rounds& other, const Rounds& own) { return MedianOfRounds(other) / MedianOfRounds(own); }

}  // namespace ronda::bench
