// SPDX-License-Identifier: Apache-2.0

// Dynamic loss scaling, which keeps gradients within the range of 16 bits.
#ifndef RONDA_CLIENT_RONDA_TRAINING_LOSS_SCALER_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_LOSS_SCALER_HPP_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "../status.hpp"

namespace ronda {
inline namespace abi1 {
namespace training {

// The defaults are the same as in Apex. PyTorch's GradScaler has the same ones, but no minimum and no maximum.
struct LossScalerOptions {
  double initial = 65536;
  double growth = 2;           // the factor after `growth_interval` good steps in a row; at least 1
  double backoff = 0.5;        // the factor after an overflow; between 0 and 1
  int growth_interval = 2000;  // steps; at least 1
  double minimum = 1;          // an overflow at this scale is an error
  double maximum = 1 << 24;
};

// The state of a LossScaler, for a checkpoint. Trivially copyable.
struct LossScalerState {
  double scale = 0;
  int good_steps = 0;  // in a row
};

// Maintains the scale by which a loss is multiplied before backward, so that small gradients do not become zero in 16
// bits. The scale grows as long as no gradient overflows. The method is from Micikevicius et al., "Mixed precision
// training", 2018, section 3.2.
//
//   ronda::training::LossScaler scaler;
//   DistributedOptimizerOptions options;  options.skip_on_overflow = true;
//   for (...) {
//     ... backward of loss * scaler.scale(); the optimizer divides the gradients by it
//     optimizer.step();
//     scaler.update(optimizer.overflowed(), optimizer.overflowed_gradient());
//   }
//
// All ranks have the same scale, because optimizer.overflowed() returns the same value on all ranks. Thread-compatible.
class LossScaler {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if an option is out of range.
  explicit LossScaler(const LossScalerOptions& options = {}) : options_(options), state_{options.initial, 0} {
    check(options.minimum > 0 && options.minimum <= options.maximum && std::isfinite(options.maximum),
          "minimum must be above 0, and not above maximum");
    check(options.initial >= options.minimum && options.initial <= options.maximum,
          "initial must be between minimum and maximum");
    check(options.growth >= 1 && std::isfinite(options.growth), "growth must be at least 1");
    check(options.backoff > 0 && options.backoff < 1, "backoff must be between 0 and 1");
    check(options.growth_interval >= 1, "growth_interval must be at least 1");
  }

  double scale() const noexcept { return state_.scale; }

  // Must be called after each step. `overflowed` says whether a gradient overflowed on any rank, so that the step was
  // skipped. `gradient` is the name of such a gradient, for the error message.
  // Errors: RONDA_ERROR_INVALID_ARGUMENT if the gradients overflowed even though the scale is already at its minimum.
  Status try_update(bool overflowed, std::string_view gradient = {}) {
    if (!overflowed) {
      if (++state_.good_steps < options_.growth_interval) return {};
      state_ = {std::min(state_.scale * options_.growth, options_.maximum), 0};
      return {};
    }
    const bool is_smallest = state_.scale <= options_.minimum;
    state_ = {std::max(state_.scale * options_.backoff, options_.minimum), 0};
    if (!is_smallest) return {};
    return detail::invalid_argument(
        "LossScaler: " + (gradient.empty() ? std::string("a gradient") : "gradient '" + std::string(gradient) + "'") +
        " overflows at the smallest scale, " + std::to_string(options_.minimum) +
        ": look for numbers that are infinite or none in the data, or for a learning rate that is too high");
  }
  void update(bool overflowed, std::string_view gradient = {}) { try_update(overflowed, gradient).throw_if_error(); }

  LossScalerState state() const noexcept { return state_; }
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if the scale in `state` is outside the scaler's range, or good_steps is
  // negative.
  void set_state(const LossScalerState& state) {
    check(state.scale >= options_.minimum && state.scale <= options_.maximum && state.good_steps >= 0,
          "the state has scale " + std::to_string(state.scale) + ", which is not between minimum and maximum");
    state_ = state;
  }

 private:
  static void check(bool holds, const std::string& what) {
    if (!holds) throw Error(RONDA_ERROR_INVALID_ARGUMENT, "LossScaler: " + what);
  }

  LossScalerOptions options_;
  LossScalerState state_;
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_LOSS_SCALER_HPP_
