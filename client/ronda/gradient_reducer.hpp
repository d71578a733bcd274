// SPDX-License-Identifier: Apache-2.0

// Gradients that are reduced across the ranks in every step, while backward still computes other gradients.
#ifndef RONDA_CLIENT_RONDA_GRADIENT_REDUCER_HPP_
#define RONDA_CLIENT_RONDA_GRADIENT_REDUCER_HPP_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ronda.h"
#include "group.hpp"
#include "options.hpp"
#include "reductions.hpp"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {

struct DistributedOptimizerOptions {
  Op op = Op::Average;
  Compression compression = Compression::none;
  double prescale = 1;   // factor applied to each rank's gradients; finite, not 0
  double postscale = 1;  // factor applied to the results; finite, not 0

  // Adds the rounding errors of compression to this rank's gradients in the next step.
  bool error_feedback = false;

  // With Op::Average, gradients are divided by this factor before the sum, and by size() / factor after it. With a
  // factor above 1, 16-bit sums are less likely to overflow; with a factor below 1, small gradients are less likely to
  // become zero. The factor must be finite and not 0.
  double gradient_predivide_factor = 1;

  // If a reduced gradient has an infinite or NaN element on any rank, all ranks skip the step and do not call the
  // optimizer. See overflowed(). With skip_on_overflow, the host waits for gradients in GPU memory, because it checks
  // the results.
  bool skip_on_overflow = false;

  // The gradients of a group are reduced together, once all of them are ready. `group_count` divides the constructor's
  // list into that many groups of consecutive gradients. `groups` instead lists the gradient names of each group; a
  // gradient in no group is reduced by itself.
  int group_count = 0;
  std::vector<std::vector<std::string>> groups = {};

  // The ranks that reduce the gradients, and how long they wait for a late rank.
  CallOptions call = {};

  // The number of backward passes before each step(); each pass adds to the gradients. The sum over the passes is
  // reduced once, after the last pass. To get the mean over the passes, set prescale to 1.0 / backward_passes_per_step.
  int backward_passes_per_step = 1;
};

// The part of a DistributedOptimizer (optimizer.hpp) that does not depend on the wrapped optimizer: it reduces the
// gradients of each step. A GradientReducer prepares a group when the first gradient is complete, and again after an
// error and in the next job. Thread-compatible.
class GradientReducer {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if a name is empty or used twice, or an option is out of range.
  GradientReducer(std::vector<Tensor> gradients, const DistributedOptimizerOptions& options)
      : gradients_(std::move(gradients)), options_(options), states_(gradients_.size()) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::string& name = gradients_[i].name;
      if (name.empty()) throw invalid("gradient " + std::to_string(i) + " has no name");
      if (!index_.emplace(name, i).second) throw invalid("two gradients are named '" + name + "'");
    }
    check_options();
    make_tensor_groups();
  }

  // Not copyable, because index_ refers to the names in gradients_.
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Announces that backward has added to the gradient for the last time in this pass. In the last pass of a step, this
  // also lets the gradient's allreduce start, in place; gradients that are submitted together start when the last of
  // them is announced. Does not wait.
  // Errors: RONDA_ERROR_INVALID_ARGUMENT if the gradient is unknown, has no data, or has been announced in every pass
  // of this step; the errors of a submission, which synchronize() returns again.
  Status try_gradient_ready(std::string_view name) {
    const auto found = index_.find(name);
    if (found == index_.end()) {
      return refusal({"there is no gradient '", name, "': pass it to the constructor"});
    }
    return try_gradient_ready(found->second);
  }
  void gradient_ready(std::string_view name) { try_gradient_ready(name).throw_if_error(); }

  // Announces the gradient at position `index` in the constructor's `gradients`.
  Status try_gradient_ready(std::size_t index) {
    if (index >= gradients_.size()) return no_gradient(index);
    if (!is_open(index)) return announced_too_often(index);
    if (states_[index].passes + 1 == options_.backward_passes_per_step) return announce(index);
    ++states_[index].passes;
    return {};
  }
  void gradient_ready(std::size_t index) { try_gradient_ready(index).throw_if_error(); }

  // Like try_gradient_ready(), for a gradient that has moved to `data`. From now on it is reduced in place there.
  Status try_gradient_ready_at(std::size_t index, void* data) {
    if (index < gradients_.size() && is_open(index)) gradients_[index].data = data;
    return try_gradient_ready(index);
  }
  void gradient_ready_at(std::size_t index, void* data) { try_gradient_ready_at(index, data).throw_if_error(); }

  // Changes the dtype and shape of a gradient. The first announcement of the next step prepares the group again. Every
  // rank must make the same change, and must pass the gradient's new address to gradient_ready_at().
  // Errors: RONDA_ERROR_INVALID_ARGUMENT if there is no gradient `index`, or a gradient of this step is in flight.
  Status try_redefine(std::size_t index, ronda_dtype dtype, std::vector<std::int64_t> shape) {
    if (index >= gradients_.size()) return no_gradient(index);
    Tensor& gradient = gradients_[index];
    if (prepared_) {
      return refusal({"gradient '", gradient.name, "' gets another dtype or shape during a step: call step() first"});
    }
    gradient.dtype = dtype;
    gradient.shape = std::move(shape);
    gradient.data = nullptr;
    group_ = PreparedGroup();
    return {};
  }
  void redefine(std::size_t index, ronda_dtype dtype, std::vector<std::int64_t> shape) {
    try_redefine(index, dtype, std::move(shape)).throw_if_error();
  }

  // Waits until all gradients are reduced, so that the program can inspect or clip them before step(). For gradients in
  // GPU memory, their streams wait instead of this thread. First submits the gradients that were not announced in every
  // pass, so that all ranks communicate the same tensors. Of these, a gradient that was announced in some passes is
  // submitted as it is, and a gradient that was never announced is submitted as zeros. Does nothing if called again in
  // the same step.
  // Errors: the error of the first gradient whose submission or operation failed. If the device failed after the
  // previous step() had returned, returns that failure.
  Status try_synchronize() {
    if (synchronized_) return {};
    overflowed_ = nullptr;
    Status status = announce_rest();
    if (status.ok()) status = options_.skip_on_overflow ? group_.wait() : group_.wait_on_own_streams();
    if (status.ok() && options_.skip_on_overflow) {
      if (const std::optional<std::size_t> index = group_.overflowed()) overflowed_ = &gradients_[*index];
    }
    if (!status.ok()) group_ = PreparedGroup();  // waits for what is in flight
    for (State& state : states_) state.passes = 0;
    prepared_ = false;
    synchronized_ = status.ok();
    return status;
  }
  void synchronize() { try_synchronize().throw_if_error(); }

  // Calls synchronize(), unless the program has already done so in this step. Then calls `apply`, unless synchronize()
  // failed or the step is skipped, and begins the next step. Errors: as synchronize(). Does not catch exceptions thrown
  // by `apply`.
  template <class Apply>
  Status try_step_with(const Apply& apply) {
    Status status = try_synchronize();
    if (!status.ok()) return status;
    synchronized_ = false;
    if (overflowed()) {
      ++skipped_steps_;
    } else {
      ronda_elastic_begin_update();
      apply();
    }
    return status;
  }

  // Makes the host wait until the gradients of the last synchronize() or step() are reduced, including gradients in GPU
  // memory. Errors: the error of the first gradient whose reduction failed on the device.
  Status try_finish() const { return group_.finish(); }
  void finish() const { try_finish().throw_if_error(); }

  // With skip_on_overflow, overflowed() returns whether the gradients of the last synchronize() or step() had an
  // infinite or NaN element on any rank. The result is the same on every rank. If it is true, lower the loss scale.
  // overflowed_gradient() is the name of the first such gradient, or empty. skipped_steps() counts the steps skipped
  // for that reason.
  bool overflowed() const noexcept { return overflowed_ != nullptr; }
  std::string_view overflowed_gradient() const noexcept {
    return overflowed_ != nullptr ? std::string_view(overflowed_->name) : std::string_view();
  }
  std::int64_t skipped_steps() const noexcept { return skipped_steps_; }

  // Returns whether synchronize() has reduced the gradients of this step, and step() has not been called since.
  bool synchronized() const noexcept { return synchronized_; }

  const std::vector<Tensor>& gradients() const noexcept { return gradients_; }

 private:
  struct State {
    int passes = 0;        // passes of this step in which the gradient was announced
    void* data = nullptr;  // where the group expects the gradient
  };

  // Joins the parts of the error text. (GCC 12 prints false warnings about concatenation with `+` in inlined code.)
  static Status refusal(std::initializer_list<std::string_view> parts) {
    std::string text = "DistributedOptimizer: ";
    for (const std::string_view part : parts) text.append(part);
    return detail::invalid_argument(std::move(text));
  }

  static Error invalid(std::string_view what) { return Error(RONDA_ERROR_INVALID_ARGUMENT, refusal({what}).message()); }

  Status no_gradient(std::size_t index) const {
    return refusal({"there is no gradient ", std::to_string(index), " among ", std::to_string(gradients_.size())});
  }

  // Returns whether the gradient may be announced.
  bool is_open(std::size_t index) const noexcept {
    return !synchronized_ && states_[index].passes < options_.backward_passes_per_step;
  }

  Status announced_too_often(std::size_t index) const {
    const int passes = options_.backward_passes_per_step;
    const std::string count = std::to_string(passes).append(passes == 1 ? " time" : " times");
    return refusal({"gradient '", gradients_[index].name, "' is announced ",
                    synchronized_ ? "after synchronize()" : "more than ", synchronized_ ? std::string_view() : count,
                    " in one step: call step() first, or set backward_passes_per_step to the number of passes"});
  }

  static void check_factor(const char* name, double value) {
    if (value == 0 || !std::isfinite(value)) throw invalid(std::string(name) + " must be finite, and not 0");
  }

  void check_options() const {
    if (options_.backward_passes_per_step < 1) {
      throw invalid("backward_passes_per_step is " + std::to_string(options_.backward_passes_per_step) +
                    ": it must be at least 1");
    }
    const double factor = options_.gradient_predivide_factor;
    check_factor("gradient_predivide_factor", factor);
    check_factor("prescale", options_.prescale);
    check_factor("postscale", options_.postscale);
    if (factor != 1 && options_.op != Op::Average) {
      throw invalid("gradient_predivide_factor is for Op::Average: set prescale and postscale with other operations");
    }
    if (options_.group_count < 0 || options_.group_count > static_cast<int>(gradients_.size())) {
      throw invalid("group_count is " + std::to_string(options_.group_count) + ", for " +
                    std::to_string(gradients_.size()) + " gradients");
    }
    if (options_.group_count > 0 && !options_.groups.empty()) throw invalid("set either group_count or groups");
  }

  ReduceOptions reduce_options() const {
    ReduceOptions reduction;
    reduction.op = options_.op;
    reduction.compression = options_.compression;
    reduction.prescale = options_.prescale / options_.gradient_predivide_factor;
    reduction.postscale = options_.postscale * options_.gradient_predivide_factor;
    reduction.error_feedback = options_.error_feedback;
    reduction.detect_overflow = options_.skip_on_overflow;
    return reduction;
  }

  void make_tensor_groups() {
    std::vector<bool> grouped(gradients_.size());
    for (const std::vector<std::string>& names : options_.groups) {
      std::vector<std::size_t> members;
      for (const std::string& name : names) {
        const auto found = index_.find(name);
        if (found == index_.end()) throw invalid("a group has gradient '" + name + "', which there is not");
        if (grouped[found->second]) throw invalid("gradient '" + name + "' is in a group twice");
        grouped[found->second] = true;
        members.push_back(found->second);
      }
      if (members.size() > 1) tensor_groups_.push_back(std::move(members));
    }
    const std::size_t count = static_cast<std::size_t>(options_.group_count), all = gradients_.size();
    for (std::size_t g = 0; g < count; ++g) {
      std::vector<std::size_t> members;
      for (std::size_t i = g * all / count; i < (g + 1) * all / count; ++i) members.push_back(i);
      if (members.size() > 1) tensor_groups_.push_back(std::move(members));
    }
  }

  // Prepares a group before the first announcement of a step, unless the existing group belongs to the current job.
  Status prepare() {
    if (prepared_) return {};
    prepared_ = group_.is_current();
    if (prepared_) return {};
    group_ = PreparedGroup();
    Result<PreparedGroup> group =
        try_prepare_group("DistributedOptimizer", gradients_, reduce_options(), options_.call);
    if (!group.ok()) return group.status();
    for (const std::vector<std::size_t>& members : tensor_groups_) {
      Status status = group.value().try_combine(gradients_[members.front()].name, members);
      if (!status.ok()) return status;
    }
    group.value().learn_order();
    group_ = std::move(group).value();
    for (std::size_t i = 0; i < states_.size(); ++i) states_[i].data = gradients_[i].data;
    prepared_ = true;
    return {};
  }

  // Tells the prepared group that the gradient is complete in this step.
  Status announce(std::size_t index) {
    Status status = prepare();
    if (!status.ok()) return status;
    State& state = states_[index];
    const Tensor& gradient = gradients_[index];
    if (gradient.data == nullptr && gradient.bytes() > 0) {
      return refusal({"gradient '", gradient.name, "' has no data: pass its address to gradient_ready_at()"});
    }
    state.passes = options_.backward_passes_per_step;
    if (gradient.data == state.data) return group_.try_ready(index);
    state.data = gradient.data;
    return group_.try_ready_at(index, gradient.data);
  }

  // Announces the gradients that have not been announced in every pass.
  Status announce_rest() {
    Status status = prepare();
    for (std::size_t i = 0; i < gradients_.size() && status.ok(); ++i) {
      if (states_[i].passes == options_.backward_passes_per_step) continue;
      if (states_[i].passes == 0) status = set_to_zero(gradients_[i]);
      if (status.ok()) status = announce(i);
    }
    return status;
  }

  // Sets all bytes to zero, because the number 0 consists of zero bits in every dtype.
  static Status set_to_zero(const Tensor& gradient) {
    if (gradient.data == nullptr) return {};  // its announcement will fail
    if (gradient.memory == RONDA_MEMORY_CUDA) {
      return detail::to_status(ronda_cuda_zero(gradient.data, gradient.bytes(), gradient.stream));
    }
    std::memset(gradient.data, 0, gradient.bytes());
    return {};
  }

  std::vector<Tensor> gradients_;  // as passed to the constructor, gradient_ready_at() and redefine()
  const DistributedOptimizerOptions options_;
  std::unordered_map<std::string_view, std::size_t> index_;  // of each gradient, by name
  std::vector<State> states_;                                // of each gradient
  std::vector<std::vector<std::size_t>> tensor_groups_;      // of several gradients that are reduced together
  PreparedGroup group_;                                      // of all gradients
  bool prepared_ = false;                                    // the group is this step's group
  bool synchronized_ = false;                                // in this step
  const Tensor* overflowed_ = nullptr;                       // the first gradient with an overflow
  std::int64_t skipped_steps_ = 0;
};

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_GRADIENT_REDUCER_HPP_
