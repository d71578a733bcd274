// SPDX-License-Identifier: Apache-2.0

// Data-parallel training: the same parameters on every rank to begin with, and averaged gradients in every step.
#ifndef RONDA_CLIENT_RONDA_OPTIMIZER_HPP_
#define RONDA_CLIENT_RONDA_OPTIMIZER_HPP_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exchanges.hpp"
#include "handle.hpp"
#include "options.hpp"
#include "reductions.hpp"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {

// Copies `parameters` from rank `root` to all ranks. Starts all copies at once and then waits, also for those in a
// GPU's memory. Every rank passes tensors of the same names, shapes and dtypes, in any order.
// Errors: as broadcast(), of the first tensor that failed. When it returns, no operation is in flight.
inline Status try_broadcast_parameters(const std::vector<Tensor>& parameters, int root, const CallOptions& call = {}) {
  Status first_error;
  std::vector<Handle> handles;
  handles.reserve(parameters.size());
  for (const Tensor& parameter : parameters) {
    Result<Handle> handle = try_broadcast_async(parameter, root, call);
    if (!handle.ok()) {
      first_error = handle.status();
      break;
    }
    handles.push_back(std::move(handle).value());
  }
  Status status = wait_for_all(handles);
  return first_error.ok() ? status : first_error;
}
inline void broadcast_parameters(const std::vector<Tensor>& parameters, int root, const CallOptions& call = {}) {
  try_broadcast_parameters(parameters, root, call).throw_if_error();
}

// Copies an optimizer's state from rank `root` to all ranks. `Optimizer` has a member state() that returns a
// std::vector<ronda::Tensor> of the state on which step() depends: momentum buffers, step counters, the learning rate,
// ...
// Errors: as broadcast_parameters().
template <class Optimizer>
Status try_broadcast_optimizer_state(Optimizer& optimizer, int root, const CallOptions& call = {}) {
  return try_broadcast_parameters(optimizer.state(), root, call);
}
template <class Optimizer>
void broadcast_optimizer_state(Optimizer& optimizer, int root, const CallOptions& call = {}) {
  try_broadcast_optimizer_state(optimizer, root, call).throw_if_error();
}

struct DistributedOptimizerOptions {
  Op op = Op::Average;
  Compression compression = Compression::none;
  double prescale = 1;   // factor applied to each rank's gradients; finite, not 0
  double postscale = 1;  // factor applied to the results; finite, not 0

  // Adds the rounding errors of compression to this rank's gradients of the next step.
  bool error_feedback = false;

  // With Op::Average: gradients are divided by this factor before they are summed, and by size() / factor afterwards. A
  // factor above 1 makes sums in 16 bits overflow later; a factor below 1 makes small gradients vanish later. Finite,
  // not 0.
  double gradient_predivide_factor = 1;

  // If a reduced gradient, on any rank, has an element that is infinite or not a number, all ranks skip the step: the
  // optimizer is not called. See overflowed(). To check this, the host also waits for gradients in a GPU's memory.
  bool skip_on_overflow = false;

  // Gradients of a group are reduced together, when all are ready. `group_count` forms so many groups of neighbours in
  // the constructor's list. `groups` lists groups by name; a gradient in none of them is reduced by itself.
  int group_count = 0;
  std::vector<std::vector<std::string>> groups = {};

  // The ranks that reduce the gradients, and how long they wait for a rank.
  CallOptions call = {};

  // How often backward runs, and adds to the gradients, before step(). Gradients travel once, after the last pass, as
  // the sum over the passes. For their mean, set prescale to 1.0 / backward_passes_per_step.
  int backward_passes_per_step = 1;
};

// Wraps a trainer's optimizer, which has a member step() that applies the gradients. It communicates each gradient as
// soon as backward has produced it, while backward goes on with the others.
//
//   ronda::DistributedOptimizer optimizer(sgd, {ronda::tensor("w.grad", w_grad), ronda::tensor("b.grad", b_grad)});
//   for (...) {
//     ... backward: w_grad is ready
//     optimizer.gradient_ready("w.grad");
//     ... backward: b_grad is ready
//     optimizer.gradient_ready("b.grad");
//     optimizer.step();
//   }
//
// Gradients in a GPU's memory (cuda_tensor()) are announced as soon as their stream has been given the work that
// computes them. No thread waits for that work: the stream waits for the reduced gradients. As soon as the device has
// all the reductions' work, step() calls the optimizer, which gives its own work to the same stream. The next
// synchronize() or step() reports later errors on the device. finish() waits for the device and reports them, too: call
// it before the program saves the parameters, for instance in a checkpoint. In an elastic job step() itself waits for
// the device before it calls the optimizer.
//
// Every rank has the same gradients: names, shapes and dtypes. A gradient belongs to the library from its last
// gradient_ready() to synchronize() or step(). After that it holds the reduction over all ranks.
//
// After an error from synchronize() or step() nothing is in flight, the gradients are undefined, and a new step begins:
// compute them again, or stop.
//
// Steps allocate no memory. Thread-compatible. The optimizer and the gradients must outlive this object. Its destructor
// waits for what is in flight.
template <class Optimizer>
class DistributedOptimizer {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if a name is empty or used twice, or an option is out of range.
  DistributedOptimizer(Optimizer& optimizer, std::vector<Tensor> gradients,
                       const DistributedOptimizerOptions& options = {})
      : optimizer_(optimizer), gradients_(std::move(gradients)), options_(options), states_(gradients_.size()) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::string& name = gradients_[i].name;
      if (name.empty()) throw invalid("gradient " + std::to_string(i) + " has no name");
      if (!index_.emplace(name, i).second) throw invalid("two gradients are named '" + name + "'");
    }
    check_options();
    reduction_ = reduce_options();
    make_groups();
  }

  // index_ refers to the names in gradients_.
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // Backward has added to the gradient for the last time in this pass. In the last pass the allreduce starts, in place,
  // and the call returns at once.
  // Errors: RONDA_ERROR_INVALID_ARGUMENT if the gradient is unknown, or has been announced in every pass of this step;
  // those of a submission.
  Status try_gradient_ready(std::string_view name) {
    const auto found = index_.find(name);
    if (found == index_.end()) {
      return detail::invalid_argument(prefix() + "there is no gradient '" + std::string(name) +
                                      "': pass it to the constructor");
    }
    return try_gradient_ready(found->second);
  }
  void gradient_ready(std::string_view name) { try_gradient_ready(name).throw_if_error(); }

  // As above, with the position in the constructor's `gradients`.
  Status try_gradient_ready(std::size_t index) {
    if (index >= gradients_.size()) {
      return detail::invalid_argument(prefix() + "there is no gradient " + std::to_string(index) + " among " +
                                      std::to_string(gradients_.size()));
    }
    State& state = states_[index];
    if (!is_open(state)) return announced_too_often(index);
    if (state.passes + 1 == options_.backward_passes_per_step) {
      Group& group = groups_[state.group];
      if (group.ready + 1 == group.members.size()) {
        Status status = submit(group);
        if (!status.ok()) return status;
      }
      ++group.ready;
    }
    ++state.passes;
    return {};
  }
  void gradient_ready(std::size_t index) { try_gradient_ready(index).throw_if_error(); }

  // As try_gradient_ready(), for a gradient that has moved to `data`, where it is reduced in place from now on.
  Status try_gradient_ready_at(std::size_t index, void* data) {
    if (index < gradients_.size() && is_open(states_[index])) relocate(index, data);
    return try_gradient_ready(index);
  }
  void gradient_ready_at(std::size_t index, void* data) { try_gradient_ready_at(index, data).throw_if_error(); }

  // Waits until all gradients are reduced, so that the program can inspect or clip them before step(). For gradients in
  // a GPU's memory their streams wait. Submits the gradients that have not been announced in every pass, so that all
  // ranks communicate the same tensors: as they are if they were announced in some passes, as zeros if in none. The
  // second call in a step does nothing.
  // Errors: the error of the first gradient whose submission or operation failed. It may have failed in the previous
  // step, on the device, after step() had returned.
  Status try_synchronize() {
    if (synchronized_) return {};
    Status first_error = look_at_last_step();
    for (std::size_t g = 0; g < groups_.size() && first_error.ok(); ++g) first_error = submit_unannounced(groups_[g]);
    overflowed_ = nullptr;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      Handle handle = std::exchange(states_[i].handle, Handle());
      Status status =
          options_.skip_on_overflow ? wait_and_look(handle, gradients_[i]) : handle.wait_on(gradients_[i].stream);
      if (first_error.ok()) first_error = std::move(status);
      states_[i].on_device = Handle();
      if (gradients_[i].memory == RONDA_MEMORY_CUDA && !options_.skip_on_overflow) {
        states_[i].on_device = std::move(handle);
      }
      states_[i].passes = 0;
    }
    for (Group& group : groups_) group.ready = 0;
    synchronized_ = first_error.ok();
    return first_error;
  }
  void synchronize() { try_synchronize().throw_if_error(); }

  // Synchronizes, unless that has been done in this step. Then calls the optimizer's step(), unless synchronizing
  // failed or the step is skipped. In an elastic job the state is incomplete from here to elastic::State::step_done().
  // Errors: as synchronize(). Exceptions of the optimizer pass through.
  Status try_step() {
    Status status = try_synchronize();
    if (!status.ok()) return status;
    synchronized_ = false;
    if (overflowed()) {
      ++skipped_steps_;
    } else {
      ronda_elastic_begin_update();
      optimizer_.step();
    }
    return status;
  }
  void step() { try_step().throw_if_error(); }

  // The host waits until the gradients of the last synchronize() or step() are reduced, also those in a GPU's memory.
  // Errors: the error of the first gradient whose reduction failed there.
  Status try_finish() const {
    Status first_error;
    for (const State& state : states_) {
      Status status = state.on_device.wait();
      if (first_error.ok()) first_error = std::move(status);
    }
    return first_error;
  }
  void finish() const { try_finish().throw_if_error(); }

  // With skip_on_overflow: whether the gradients of the last synchronize() or step(), on any rank, had an element that
  // is infinite or not a number. The answer is the same on every rank: lower the loss scale. Then the name of the first
  // such gradient, or an empty name; and how many steps were skipped for that reason.
  bool overflowed() const noexcept { return overflowed_ != nullptr; }
  std::string_view overflowed_gradient() const noexcept {
    return overflowed_ != nullptr ? std::string_view(overflowed_->name) : std::string_view();
  }
  std::int64_t skipped_steps() const noexcept { return skipped_steps_; }

  // Whether the gradients are reduced, and step() has not been called yet.
  bool synchronized() const noexcept { return synchronized_; }

  Optimizer& optimizer() noexcept { return optimizer_; }
  const std::vector<Tensor>& gradients() const noexcept { return gradients_; }

 private:
  struct State {
    int passes = 0;         // of this step, those in which the gradient was announced
    Handle handle;          // of its allreduce, once submitted
    Handle on_device;       // the previous allreduce, for which its stream waits
    std::size_t group = 0;  // in groups_
    std::size_t place = 0;  // in its group
  };

  // Gradients that are submitted together; most groups have one.
  struct Group {
    std::vector<std::size_t> members;
    std::vector<ronda_allreduce_args> args;  // of the members, if the group has several
    std::vector<ronda_handle> handles;       // room for the members' handles
    std::size_t ready = 0;                   // members that have been announced in every pass of this step
  };

  static std::string prefix() { return "DistributedOptimizer: "; }

  static Error invalid(const std::string& what) { return Error(RONDA_ERROR_INVALID_ARGUMENT, prefix() + what); }

  Status announced_too_often(std::size_t index) const {
    const int passes = options_.backward_passes_per_step;
    return detail::invalid_argument(
        prefix() + "gradient '" + gradients_[index].name + "' is announced " +
        (synchronized_ ? std::string("after synchronize()")
                       : "more than " + std::to_string(passes) + (passes == 1 ? " time" : " times")) +
        " in one step: call step() first, or set backward_passes_per_step to the number of passes");
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

  void make_groups() {
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
      add_group(std::move(members));
    }
    const std::size_t rest = gradients_.size();
    const std::size_t count = options_.group_count > 0 ? static_cast<std::size_t>(options_.group_count) : rest;
    for (std::size_t g = 0; g < count; ++g) {
      std::vector<std::size_t> members;
      for (std::size_t i = g * rest / count; i < (g + 1) * rest / count; ++i) {
        if (!grouped[i]) members.push_back(i);
      }
      add_group(std::move(members));
    }
  }

  void add_group(std::vector<std::size_t> members) {
    if (members.empty()) return;
    Group group;
    for (const std::size_t index : members) {
      states_[index].group = groups_.size();
      states_[index].place = group.args.size();
      if (members.size() == 1) continue;
      const Tensor& gradient = gradients_[index];
      group.args.push_back(detail::allreduce_args(gradient, gradient.data, reduction_, options_.call));
    }
    group.handles.resize(group.args.size());
    group.members = std::move(members);
    groups_.push_back(std::move(group));
  }

  // Whether the gradient may be announced.
  bool is_open(const State& state) const noexcept {
    return !synchronized_ && state.passes < options_.backward_passes_per_step;
  }

  void relocate(std::size_t index, void* data) {
    gradients_[index].data = data;
    Group& group = groups_[states_[index].group];
    if (group.args.empty()) return;
    ronda_allreduce_args& args = group.args[states_[index].place];
    args.input = args.output = data;
  }

  Status submit(Group& group) {
    const std::size_t first = group.members.front();
    if (group.members.size() == 1) {
      Result<Handle> handle = try_allreduce_async(gradients_[first], reduction_, options_.call);
      if (!handle.ok()) return handle.status();
      states_[first].handle = std::move(handle).value();
      return {};
    }
    Status status = detail::check_scales(gradients_[first].name, reduction_);
    if (!status.ok()) return status;
    status = detail::to_status(ronda_grouped_allreduce_async(group.args.data(), group.args.size(),
                                                             gradients_[first].name.c_str(), group.handles.data()));
    if (!status.ok()) return status;
    for (std::size_t i = 0; i < group.members.size(); ++i) states_[group.members[i]].handle = Handle(group.handles[i]);
    return {};
  }

  Status submit_unannounced(Group& group) {
    if (group.ready == group.members.size()) return {};
    for (const std::size_t index : group.members) {
      if (states_[index].passes > 0) continue;
      Status status = set_to_zero(gradients_[index]);
      if (!status.ok()) return status;
    }
    return submit(group);
  }

  // In all dtypes zero is all bits zero.
  static Status set_to_zero(const Tensor& gradient) {
    if (gradient.data == nullptr) return {};  // the submission will fail
    if (gradient.memory == RONDA_MEMORY_CUDA) {
      return detail::to_status(ronda_cuda_zero(gradient.data, gradient.bytes(), gradient.stream));
    }
    std::memset(gradient.data, 0, gradient.bytes());
    return {};
  }

  // The status of the operations that streams wait for, as far as it is known.
  Status look_at_last_step() const {
    for (const State& state : states_) {
      if (!state.on_device.poll()) continue;
      Status status = state.on_device.wait();
      if (!status.ok()) return status;
    }
    return {};
  }

  Status wait_and_look(const Handle& handle, const Tensor& gradient) {
    Status status = handle.wait();
    if (status.ok() && handle.id() != 0 && overflowed_ == nullptr && handle.found_inf()) overflowed_ = &gradient;
    return status;
  }

  Optimizer& optimizer_;
  std::vector<Tensor> gradients_;  // as passed to the constructor, except for their data
  const DistributedOptimizerOptions options_;
  std::unordered_map<std::string_view, std::size_t> index_;  // of each gradient, by name
  std::vector<State> states_;                                // of each gradient
  std::vector<Group> groups_;                                // each gradient is in one
  ReduceOptions reduction_;                                  // of every gradient
  bool synchronized_ = false;                                // in this step
  const Tensor* overflowed_ = nullptr;                       // the first gradient with an overflow
  std::int64_t skipped_steps_ = 0;
};

}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_OPTIMIZER_HPP_
