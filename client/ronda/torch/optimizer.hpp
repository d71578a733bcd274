// SPDX-License-Identifier: Apache-2.0

// Makes libtorch optimizers use gradients that are averaged over the ranks.
#ifndef RONDA_CLIENT_RONDA_TORCH_OPTIMIZER_HPP_
#define RONDA_CLIENT_RONDA_TORCH_OPTIMIZER_HPP_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "../gradient_reducer.hpp"
#include "../options.hpp"
#include "../tensor.hpp"
#include "collectives.hpp"
#include "gradient_reducer.hpp"
#include "parameters.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace torch {

// Wraps a libtorch optimizer. Reduces each gradient as soon as backward has accumulated it, while backward computes the
// other gradients. step() applies the reduced gradients.
//
//   torch::optim::SGD sgd(net->parameters(), 0.1);
//   ronda::torch::DistributedOptimizer optimizer(sgd, net->named_parameters());
//   ronda::torch::broadcast_parameters(net);
//   for (...) {
//     optimizer.zero_grad();
//     loss(net(batch)).backward();
//     optimizer.step();
//   }
//
// Takes the options of ronda::DistributedOptimizer; groups list parameter names. Hooks announce the gradients. Every
// rank must have parameters with the same names, shapes and dtypes, in host memory. A parameter that a step has not
// used takes part on every rank with its existing gradient, or with zeros. Parameters that are frozen (requires_grad()
// is false) when this object is created do not take part. A gradient that is not contiguous is replaced by a contiguous
// one.
//
// Between two steps, all ranks may give parameters another dtype or shape (to(), set_data()). If zero_grad() is not
// called after the change, the gradients of the next step travel in step(), and not during backward.
//
// Backward must run `backward_passes_per_step` times per step; it throws if it runs more often before step() has
// returned. After an error from step(), a new step begins: call zero_grad().
//
// Thread-compatible. The optimizer must outlive this object. The destructor waits for operations in flight.
class DistributedOptimizer {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if a parameter of the optimizer has no name in `named_parameters`, and
  // in the same cases as ronda::DistributedOptimizer.
  DistributedOptimizer(::torch::optim::Optimizer& optimizer, const NamedTensors& named_parameters,
                       const DistributedOptimizerOptions& options = {})
      : optimizer_(optimizer),
        call_(options.call),
        skips_(options.skip_on_overflow),
        gradients_("DistributedOptimizer", named_parameters, options),
        hooks_(gradients_.parameters(), &gradients_) {
    check_names(named_parameters);
  }

  // Not copyable, because the hooks refer to this object.
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // Drops the gradients of the optimizer's parameters.
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if backward has begun to reduce them: call step() first.
  void zero_grad() {
    if (gradients_.any_announced()) {
      throw detail::invalid(
          "DistributedOptimizer: zero_grad() between backward() and step(): call it before backward()");
    }
    optimizer_.zero_grad();
    hooks_.renew();
  }

  // Waits until all gradients are reduced, so that the program can inspect or clip them before step(). Does nothing if
  // called again in the same step.
  // Errors: the error of the first gradient whose submission or operation failed.
  void synchronize() { gradients_.synchronize(); }

  // Calls synchronize(), unless the program has already done so in this step. Then lets the optimizer apply the
  // gradients, unless the step is skipped because of an overflow. Errors: as synchronize(). Does not catch exceptions
  // thrown by the optimizer.
  void step() {
    gradients_.step([this] { optimizer_.step(); });
    hooks_.renew();
  }

  // A step for optimizers that evaluate the loss several times per step, such as LBFGS. `closure` must drop the
  // gradients, compute the loss, call its backward() and return the loss. In each evaluation, the optimizer gets the
  // loss averaged over all ranks, so it makes the same decisions on every rank. Returns what the optimizer's step()
  // returns.
  // Errors: as step(); RONDA_ERROR_INVALID_ARGUMENT with skip_on_overflow.
  at::Tensor step(const ::torch::optim::Optimizer::LossClosure& closure) {
    if (skips_)
      throw detail::invalid("DistributedOptimizer: a step with a closure cannot be left out: set no skip_on_overflow");
    return optimizer_.step([this, &closure] {
      const at::Tensor loss = closure();
      gradients_.step();
      return allreduce("DistributedOptimizer.loss", loss, {}, call_);
    });
  }

  // The following functions work as in ronda::DistributedOptimizer. gradients() returns the addresses of the last step.
  bool overflowed() const noexcept { return gradients_.reducer().overflowed(); }
  std::string_view overflowed_gradient() const noexcept { return gradients_.reducer().overflowed_gradient(); }
  std::int64_t skipped_steps() const noexcept { return gradients_.reducer().skipped_steps(); }
  const std::vector<Tensor>& gradients() const noexcept { return gradients_.reducer().gradients(); }

  ::torch::optim::Optimizer& optimizer() noexcept { return optimizer_; }

 private:
  void check_names(const NamedTensors& named_parameters) const {
    std::unordered_set<const void*> named;
    for (const auto& item : named_parameters) named.insert(item.value().unsafeGetTensorImpl());
    for (const auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        if (!parameter.requires_grad() || named.count(parameter.unsafeGetTensorImpl()) > 0) continue;
        throw detail::invalid("DistributedOptimizer: the optimizer has a parameter of shape " +
                              c10::str(parameter.sizes()) +
                              " that named_parameters has not: its gradient would differ between ranks");
      }
    }
  }

  ::torch::optim::Optimizer& optimizer_;
  const CallOptions call_;
  const bool skips_;
  detail::ParameterReducer gradients_;
  detail::GradientHooks<detail::ParameterReducer> hooks_;
};

}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_OPTIMIZER_HPP_
