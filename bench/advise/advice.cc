// SPDX-License-Identifier: Apache-2.0

#include "bench/advise/advice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/model/training_step.h"

namespace ronda::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kDefaultMinBucket = kMiB;
constexpr double kMinBuckets[] = {kMiB / 4, 4 * kMiB, 16 * kMiB};  // tried beside the default, as autotune does
constexpr double kWorthwhile = 0.97;                               // a change must shorten the time to this share
constexpr double kLargestFactor = 1024;

// Returns the fraction (0 to 1) of its computing speed that a rank loses to communication.
double LostSpeed(const Program& program, double cpu_share, int on_host) {
  const double computing = on_host * program.busy_cores;
  const double missing = computing + on_host * cpu_share - program.cores;
  return computing > 0 ? std::clamp(missing / computing, 0.0, 1.0) : 0;
}

// Copies that share a host are not faster than the program alone, except by chance. On a host without a spare core, a
// copy may run for many steps and then wait for a core just as long. The median step time ignores this waiting. The
// mean includes it: it is the time in which every copy completes one step.
double SlowestCompute(const Program& program, const Plan& plan) {
  constexpr double kFull = 0.9;
  const double compute = std::max(program.shared.SlowestOf(plan.ranks), program.alone.median());
  const bool is_full = plan.on_host * program.busy_cores >= kFull * program.cores;
  return is_full ? std::max(compute, program.shared.mean()) : compute;
}

}  // namespace

double AllreduceCurve::Measured(double bytes) const {
  if (bytes <= points_.front().bytes) return points_.front().seconds;
  const auto right = std::lower_bound(points_.begin(), points_.end(), bytes,
                                      [](const Point& point, double wanted) { return point.bytes < wanted; });
  if (right == points_.end()) return points_.back().seconds * bytes / points_.back().bytes;
  const Point& left = *(right - 1);
  return left.seconds + (right->seconds - left.seconds) * (bytes - left.bytes) / (right->bytes - left.bytes);
}

double AllreduceCurve::At(double bytes, int members) const {
  const double measured = members_;
  const double wanted = members;
  const double latency = points_.front().seconds;
  const double transfer = std::max(Measured(bytes) - latency, 0.0);
  return latency * (wanted - 1) / (measured - 1) + transfer * ((wanted - 1) / wanted) / ((measured - 1) / measured);
}

Prediction Predict(const Program& program, const WireOnLink& wire, const Plan& plan, double batch_factor) {
  model::TrainingStepOptions options;
  options.ranks = plan.ranks;
  options.compute = SlowestCompute(program, plan) * batch_factor;
  options.forward_share = 0;  // Profile counts from the beginning of the step
  options.allreduce = [&](double bytes) { return wire.curve.At(bytes, plan.members); };
  options.lost_speed = LostSpeed(program, wire.cpu_share, plan.on_host);
  options.min_bucket = kDefaultMinBucket;
  const double votes = program.alone.votes * wire.curve.At(0, plan.members);
  const double step = SimulateStep(program.alone.gradients, options).step + votes;
  Prediction prediction = {.step = step, .tuned = step, .min_bucket = kDefaultMinBucket};
  for (const double min_bucket : kMinBuckets) {
    options.min_bucket = min_bucket;
    const double tried = SimulateStep(program.alone.gradients, options).step + votes;
    if (tried >= prediction.tuned || tried > kWorthwhile * step) continue;
    prediction.tuned = tried;
    prediction.min_bucket = min_bucket;
  }
  prediction.compute = options.compute;
  prediction.sync = votes + wire.curve.At(program.alone.bytes(), plan.members);
  prediction.efficiency = batch_factor * program.alone.median() / step;
  return prediction;
}

double BatchFactorFor(const Program& program, const WireOnLink& wire, const Plan& plan, double speedup) {
  const auto reaches = [&](double factor) {
    return plan.ranks * Predict(program, wire, plan, factor).efficiency >= speedup;
  };
  if (reaches(1 / kLargestFactor)) return 0;
  if (!reaches(kLargestFactor)) return std::numeric_limits<double>::infinity();
  double too_small = 1 / kLargestFactor;
  double enough = kLargestFactor;
  while (enough / too_small > 1.01) {
    const double middle = std::sqrt(too_small * enough);
    (reaches(middle) ? enough : too_small) = middle;
  }
  return enough;
}

size_t BestWire(const Forecast& forecast) {
  size_t best = 0;
  for (size_t i = 1; i < forecast.wires.size(); ++i) {
    const double limit = best == 0 ? kWorthwhile * forecast.wires[0].step : forecast.wires[best].step;
    if (forecast.wires[i].step < limit) best = i;
  }
  return best;
}

}  // namespace ronda::bench
