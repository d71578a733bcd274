// Data-parallel training: the same parameters on every rank to begin with, and averaged gradients in every step.
#ifndef RONDA_CLIENT_RONDA_OPTIMIZER_HPP_
#define RONDA_CLIENT_RONDA_OPTIMIZER_HPP_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives.hpp"
#include "status.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace v1 {

// Copies `parameters` from rank `root` to all ranks: all at once, then waits. Every rank passes tensors of the same
// names, shapes and dtypes, in any order. Errors: the first tensor's that failed, as of broadcast(). Nothing is in
// flight any more when it returns.
inline Status try_broadcast_parameters(const std::vector<Tensor>& parameters, int root) {
  Status first_error;
  std::vector<Handle> handles;
  handles.reserve(parameters.size());
  for (const Tensor& parameter : parameters) {
    Result<Handle> handle = try_broadcast_async(parameter, root);
    if (!handle.ok()) {
      first_error = handle.status();
      break;
    }
    handles.push_back(std::move(handle).value());
  }
  for (const Handle& handle : handles) {
    Status status = handle.wait();
    if (first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}
inline void broadcast_parameters(const std::vector<Tensor>& parameters, int root) {
  try_broadcast_parameters(parameters, root).throw_if_error();
}

// Copies an optimizer's state from rank `root` to all ranks. `Optimizer` has a member state() that returns a
// std::vector<ronda::Tensor> of what step() depends on: momentum buffers, step counters, the learning rate, ...
// Errors: as of broadcast_parameters().
template <class Optimizer>
Status try_broadcast_optimizer_state(Optimizer& optimizer, int root) {
  return try_broadcast_parameters(optimizer.state(), root);
}
template <class Optimizer>
void broadcast_optimizer_state(Optimizer& optimizer, int root) {
  try_broadcast_optimizer_state(optimizer, root).throw_if_error();
}

struct DistributedOptimizerOptions {
  Op op = Op::Average;
  Compression compression = Compression::none;
  double prescale = 1;   // factor applied to each rank's gradients; finite, not 0
  double postscale = 1;  // factor applied to the results; finite, not 0

  // How often backward runs, adding to the gradients, before step(): gradients travel once, after the last pass. What
  // travels is the sum over the passes; for their mean, set prescale to 1.0 / backward_passes_per_step.
  int backward_passes_per_step = 1;
};

// Wraps a trainer's optimizer, which has a member step() that applies the gradients: communicates each gradient as soon
// as backward has produced it, while backward goes on with the others.
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
// Every rank has the same gradients: names, shapes and dtypes. A gradient belongs to the library from its last
// gradient_ready() to synchronize() or step(), and then holds the reduction over all ranks.
//
// After an error from synchronize() or step() nothing is in flight, the gradients are undefined, and a new step begins:
// compute them again, or give up.
//
// Steps allocate nothing here. Thread-compatible. The optimizer and the gradients must outlive it; its destructor waits
// for what is in flight.
template <class Optimizer>
class DistributedOptimizer {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if a name is empty or used twice, or an option is out of range.
  DistributedOptimizer(Optimizer& optimizer, std::vector<Tensor> gradients,
                       const DistributedOptimizerOptions& options = {})
      : optimizer_(optimizer), gradients_(std::move(gradients)), options_(options), states_(gradients_.size()) {
    if (options_.backward_passes_per_step < 1) {
      throw invalid("backward_passes_per_step is " + std::to_string(options_.backward_passes_per_step) +
                    ": it must be at least 1");
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::string& name = gradients_[i].name;
      if (name.empty()) throw invalid("gradient " + std::to_string(i) + " has no name");
      if (!index_.emplace(name, i).second) throw invalid("two gradients are named '" + name + "'");
    }
  }

  // index_ refers to the names in gradients_.
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // Backward has added to the gradient for the last time in this pass. In the last pass the allreduce starts, in place,
  // and this returns at once. Errors: RONDA_ERROR_INVALID_ARGUMENT if there is no such gradient, or it has been
  // announced in every pass of this step; those of a submission.
  Status try_gradient_ready(std::string_view name) {
    const auto found = index_.find(name);
    if (found == index_.end()) {
      return detail::invalid_argument(prefix() + "there is no gradient '" + std::string(name) +
                                      "': pass it to the constructor");
    }
    return try_gradient_ready(found->second);
  }
  void gradient_ready(std::string_view name) { try_gradient_ready(name).throw_if_error(); }

  // The same by the position in the constructor's `gradients`.
  Status try_gradient_ready(std::size_t index) {
    if (index >= gradients_.size()) {
      return detail::invalid_argument(prefix() + "there is no gradient " + std::to_string(index) + " among " +
                                      std::to_string(gradients_.size()));
    }
    State& state = states_[index];
    if (synchronized_ || state.passes == options_.backward_passes_per_step) return announced_too_often(index);
    if (state.passes + 1 == options_.backward_passes_per_step) {
      Status status = submit(index);
      if (!status.ok()) return status;
    }
    ++state.passes;
    return {};
  }
  void gradient_ready(std::size_t index) { try_gradient_ready(index).throw_if_error(); }

  // Waits until all gradients are reduced, to look at them or clip them before step(). Submits what has not been
  // announced in every pass, so that all ranks communicate the same: a gradient announced in some passes as it is, one
  // announced in none as zeros. The second call in a step does nothing. Errors: those of submissions and of operations:
  // the first gradient's that failed.
  Status try_synchronize() {
    if (synchronized_) return {};
    Status first_error;
    for (std::size_t i = 0; i < gradients_.size() && first_error.ok(); ++i) first_error = submit_unannounced(i);
    for (State& state : states_) {
      Status status = std::exchange(state.handle, Handle()).wait();
      if (first_error.ok()) first_error = std::move(status);
      state.passes = 0;
    }
    synchronized_ = first_error.ok();
    return first_error;
  }
  void synchronize() { try_synchronize().throw_if_error(); }

  // Synchronizes, unless that has been done in this step, and calls the optimizer's step(), unless that failed.
  // Errors: as of synchronize(). Exceptions of the optimizer pass through.
  Status try_step() {
    Status status = try_synchronize();
    if (!status.ok()) return status;
    synchronized_ = false;
    optimizer_.step();
    return status;
  }
  void step() { try_step().throw_if_error(); }

  Optimizer& optimizer() noexcept { return optimizer_; }
  const std::vector<Tensor>& gradients() const noexcept { return gradients_; }

 private:
  struct State {
    int passes = 0;  // of this step in which the gradient was announced
    Handle handle;   // of its allreduce, once submitted
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

  Status submit(std::size_t index) {
    AllreduceOptions allreduce;
    allreduce.op = options_.op;
    allreduce.compression = options_.compression;
    allreduce.prescale = options_.prescale;
    allreduce.postscale = options_.postscale;
    Result<Handle> handle = try_allreduce_async(gradients_[index], allreduce);
    if (!handle.ok()) return handle.status();
    states_[index].handle = std::move(handle).value();
    return {};
  }

  Status submit_unannounced(std::size_t index) {
    const int passes = states_[index].passes;
    if (passes == options_.backward_passes_per_step) return {};
    const Tensor& gradient = gradients_[index];
    // In all dtypes zero is all bits zero.
    if (passes == 0 && gradient.data != nullptr) std::memset(gradient.data, 0, gradient.bytes());
    return submit(index);
  }

  Optimizer& optimizer_;
  const std::vector<Tensor> gradients_;
  const DistributedOptimizerOptions options_;
  std::unordered_map<std::string_view, std::size_t> index_;  // of each gradient, by name
  std::vector<State> states_;                                // of each gradient
  bool synchronized_ = false;                                // in this step
};

}  // namespace v1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_OPTIMIZER_HPP_
