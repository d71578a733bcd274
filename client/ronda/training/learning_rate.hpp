// SPDX-License-Identifier: Apache-2.0

// Computes the learning rate of each training step.
#ifndef RONDA_CLIENT_RONDA_TRAINING_LEARNING_RATE_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_LEARNING_RATE_HPP_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "../options.hpp"
#include "../reductions.hpp"
#include "../status.hpp"
#include "../tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace training {

// A learning rate schedule. The rate of a step is the base rate times one factor for each part of the schedule, such as
// the warm-up. The rate depends only on the step number, so all ranks have the same rate, and a resumed job continues
// the same schedule.
//
//   const auto rate = ronda::training::LearningRate(0.1).scale_by(ronda::size()).warm_up(500).cosine(10000);
//   for (std::int64_t step = 0; step < 10000; ++step) sgd.set_learning_rate(rate.at(step));
//
// A value type. The functions that add a part throw Error (RONDA_ERROR_INVALID_ARGUMENT) if a number is out of range.
class LearningRate {
 public:
  // `base`, the base rate, must be finite and not negative.
  explicit LearningRate(double base) : base_(base) {
    check(base >= 0 && std::isfinite(base), "the base must not be negative");
  }

  // Multiplies the rate by `factor`, the growth of the global batch, usually the number of ranks. Implements the linear
  // scaling rule of Goyal et al., "Accurate, large minibatch SGD", 2017, section 2.1.
  LearningRate& scale_by(double factor) {
    check(factor > 0 && std::isfinite(factor), "the factor of the batch must be above 0");
    scale_ = factor;
    return *this;
  }

  // Adds a warm-up: over the first `steps` steps, the rate grows linearly, starting at the rate without scale_by().
  // Implements the gradual warm-up of Goyal et al., section 2.2.
  LearningRate& warm_up(std::int64_t steps) {
    check(steps >= 0, "the warm-up cannot have " + std::to_string(steps) + " steps");
    warm_up_ = steps;
    return *this;
  }

  // Multiplies the rate by `factor` at each step in `steps`, which must be in ascending order.
  LearningRate& decay_at(std::vector<std::int64_t> steps, double factor = 0.1) {
    check(std::is_sorted(steps.begin(), steps.end()), "the steps of a decay must ascend");
    check(factor > 0 && std::isfinite(factor), "the factor of a decay must be above 0");
    decays_ = std::move(steps);
    factor_ = factor;
    return *this;
  }

  // From the end of the warm-up to step `end`, the rate falls along half a cosine period. It ends at `least` times the
  // rate without this part, and stays there. Implements equation 5 of Loshchilov and Hutter, "SGDR", 2017, without
  // restarts.
  LearningRate& cosine(std::int64_t end, double least = 0) { return fall(Fall::cosine, end, least); }

  // Like cosine(), but the rate falls linearly.
  LearningRate& linear(std::int64_t end, double least = 0) { return fall(Fall::linear, end, least); }

  // Returns the rate of step `step`; the first step is step 0.
  double at(std::int64_t step) const {
    double rate = base_ * grown(step);
    for (const std::int64_t decay : decays_) rate *= step >= decay ? factor_ : 1;
    return fall_ == Fall::none ? rate : rate * fallen(step);
  }

 private:
  enum class Fall { none, cosine, linear };

  static constexpr double kPi = 3.14159265358979323846;

  static void check(bool holds, const std::string& what) {
    if (!holds) throw Error(RONDA_ERROR_INVALID_ARGUMENT, "LearningRate: " + what);
  }

  static double ratio(std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  }

  double grown(std::int64_t step) const { return step < warm_up_ ? 1 + (scale_ - 1) * ratio(step, warm_up_) : scale_; }

  LearningRate& fall(Fall how, std::int64_t end, double least) {
    check(end >= 1, "the rate cannot have fallen at step " + std::to_string(end));
    check(least >= 0 && least <= 1, "the least part of the rate must be between 0 and 1");
    fall_ = how;
    end_ = end;
    least_ = least;
    return *this;
  }

  double fallen(std::int64_t step) const {
    if (step < warm_up_) return 1;
    if (step >= end_) return least_;
    const double done = ratio(step - warm_up_, end_ - warm_up_);
    const double left = fall_ == Fall::cosine ? (1 + std::cos(kPi * done)) / 2 : 1 - done;
    return least_ + (1 - least_) * left;
  }

  double base_;
  double scale_ = 1;
  std::int64_t warm_up_ = 0;
  std::vector<std::int64_t> decays_;
  double factor_ = 1;
  Fall fall_ = Fall::none;
  std::int64_t end_ = 0;  // of the fall
  double least_ = 0;
};

struct PlateauOptions {
  double factor = 0.1;      // multiplies the rate when the metric does not improve; between 0 and 1
  int patience = 10;        // calls of update() without improvement that are tolerated
  double threshold = 1e-4;  // an improvement is at least this fraction of the best metric
  double least = 0;         // the lower limit of the product of the factors
};

// Lowers the learning rate when a metric, such as the loss, has stopped falling. The metric is averaged over the ranks,
// so that all ranks make the same decision. Thread-compatible.
//
//   ronda::training::Plateau plateau;
//   ... after each epoch, on every rank
//   sgd.set_learning_rate(base * plateau.update(validation_loss));
class Plateau {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if an option is out of range.
  explicit Plateau(const PlateauOptions& options = {}) : options_(options) {
    const bool holds = options.factor > 0 && options.factor < 1 && options.patience >= 0 && options.threshold >= 0 &&
                       options.least >= 0 && options.least <= 1;
    if (!holds) throw Error(RONDA_ERROR_INVALID_ARGUMENT, "Plateau: an option is out of range");
  }

  // `metric` is this rank's own value of the metric; lower is better. NaN and infinity are no improvement. Every rank
  // must call the function. Returns the factor by which to multiply the learning rate from now on, the same on every
  // rank.
  // Errors: the errors of an allreduce.
  Result<double> try_update(double metric, const CallOptions& call = {}) {
    Status status = try_allreduce(tensor("ronda.training.plateau", &metric), {}, call);
    if (!status.ok()) return status;
    if (best_ == kNone ? metric < kNone : metric < best_ - options_.threshold * std::abs(best_)) {
      best_ = metric;
      bad_ = 0;
    } else if (++bad_ > options_.patience) {
      bad_ = 0;
      factor_ = std::max(factor_ * options_.factor, options_.least);
    }
    return factor_;
  }
  double update(double metric, const CallOptions& call = {}) { return try_update(metric, call).value(); }

  double factor() const noexcept { return factor_; }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  PlateauOptions options_;
  double best_ = kNone;
  double factor_ = 1;
  int bad_ = 0;  // calls without improvement, in a row
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_LEARNING_RATE_HPP_
