// SPDX-License-Identifier: Apache-2.0

// Reduces gradients as soon as libtorch's backward has accumulated them.
#ifndef RONDA_CLIENT_RONDA_TORCH_GRADIENT_REDUCER_HPP_
#define RONDA_CLIENT_RONDA_TORCH_GRADIENT_REDUCER_HPP_

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../gradient_reducer.hpp"
#include "../status.hpp"
#include "../tensor.hpp"
#include "../threads.hpp"
#include "parameters.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace torch {
namespace detail {

// Calls target->gradient_accumulated(i) each time backward has accumulated the gradient of parameters[i], in the thread
// that accumulated it. For parameters in host memory, this is the thread that called backward(). The destructor removes
// the hooks. `parameters` and `target` must outlive this object.
template <class Target>
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, Target* target)
      : parameters_(parameters), target_(target), hooks_(parameters.size()) {
    renew();
  }
  ~GradientHooks() {
    for (Installed& hook : hooks_) remove(&hook);
  }

  // Moves each hook to the node that now accumulates the parameter's gradient. A parameter that gets another dtype or
  // shape also gets another node.
  void renew() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      Installed& hook = hooks_[i];
      if (parameters_[i].sizes() != hook.shape) remove(&hook);  // libtorch keeps the node as long as something owns it
      NodePointer node = ::torch::autograd::impl::grad_accumulator(parameters_[i]);
      if (node == nullptr || node == hook.node) continue;  // a parameter that is frozen has no node
      remove(&hook);
      hook.key = node->add_post_hook(std::make_unique<Hook>(target_, i));
      hook.node = std::move(node);
      hook.shape = parameters_[i].sizes().vec();
    }
  }

  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  using Variables = ::torch::autograd::variable_list;
  // A pointer to a node of the graph: a std::shared_ptr, or in newer versions of libtorch a c10::intrusive_ptr.
  using NodePointer = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  struct Hook : ::torch::autograd::FunctionPostHook {
    Hook(Target* target, std::size_t parameter) : target(target), parameter(parameter) {}

    Variables operator()(const Variables& outputs, const Variables& /*inputs*/) override {
      target->gradient_accumulated(parameter);
      return outputs;
    }

    Target* const target;
    const std::size_t parameter;
  };

  struct Installed {
    NodePointer node;  // owned here, because the parameter does not own it
    std::uintptr_t key = 0;
    std::vector<std::int64_t> shape;  // of the parameter
  };

  static void remove(Installed* hook) {
    if (hook->node != nullptr) hook->node->del_post_hook(hook->key);
    hook->node = {};
  }

  const std::vector<at::Tensor>& parameters_;
  Target* const target_;
  std::vector<Installed> hooks_;  // of each parameter
};

// A ronda::GradientReducer for the gradients of libtorch parameters. Looks up a gradient's address each time the
// gradient is announced, because the first backward allocates the gradient, and programs may replace or drop it.
// Between two steps, programs may also give parameters another dtype or shape.
//
// Thread-compatible.
class ParameterReducer {
 public:
  // Error texts begin with `owner`. Parameters without requires_grad() do not take part.
  ParameterReducer(std::string owner, const NamedTensors& named_parameters, const DistributedOptimizerOptions& options)
      : owner_(std::move(owner)),
        parameters_(trainable(named_parameters)),
        announced_(parameters_.size()),
        in_flight_(parameters_.size()),
        passes_(options.backward_passes_per_step),
        rank_(ronda::current()),
        reducer_(gradients_of(named_parameters), options) {}

  const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }
  const GradientReducer& reducer() const noexcept { return reducer_; }

  // Returns, for each parameter, whether its gradient has been announced since the last step.
  const std::vector<std::uint8_t>& announced() const noexcept { return announced_; }
  bool any_announced() const noexcept {
    for (const std::uint8_t announced : announced_) {
      if (announced != 0) return true;
    }
    return false;
  }

  // Must be called after backward has added to the gradient of parameter `index`.
  void gradient_accumulated(std::size_t index) {
    // libtorch's engine may call a hook in a thread of its own. If ranks are threads, that thread does not know its
    // rank yet.
    if (ronda::current() != rank_) ronda::make_current(rank_);
    if (!any_announced()) redefine_changed();
    void* const place = place_of(index);
    announced_[index] = 1;  // even if the submission fails: synchronize() returns its error
    reducer_.gradient_ready_at(index, place);
  }

  // Waits until all gradients are reduced. A gradient that was not announced is reduced with its current value, so that
  // the sum is the same as in a single process. A parameter without a gradient gets a gradient of zeros.
  void synchronize() {
    if (reducer_.synchronized()) return;
    const std::exception_ptr first_error = announce_rest();
    Status status = reducer_.try_synchronize();
    announced_.assign(announced_.size(), 0);
    in_flight_.assign(in_flight_.size(), {});
    if (first_error != nullptr) std::rethrow_exception(first_error);
    status.throw_if_error();
  }

  // Calls synchronize() and then, unless the step is skipped, `apply`.
  template <class Apply>
  void step(const Apply& apply) {
    synchronize();
    reducer_.try_step_with(apply).throw_if_error();
  }
  void step() {
    step([] {});
  }

 private:
  static std::vector<at::Tensor> trainable(const NamedTensors& named_parameters) {
    std::vector<at::Tensor> parameters;
    for (const auto& item : distinct(named_parameters)) {
      if (item.value().requires_grad()) parameters.push_back(item.value());
    }
    return parameters;
  }

  // Returns the gradients of the trainable parameters, in parameter order, without addresses.
  std::vector<Tensor> gradients_of(const NamedTensors& named_parameters) const {
    std::vector<Tensor> gradients;
    for (const auto& item : distinct(named_parameters)) {
      if (!item.value().requires_grad()) continue;
      if (!item.value().is_leaf()) throw invalid(owner_ + ": '" + item.key() + "' is computed, and so no parameter");
      check(item.key(), item.value());
      Tensor gradient;
      gradient.name = item.key();
      gradient.dtype = *dtype_of(item.value().scalar_type());
      gradient.shape = item.value().sizes().vec();
      gradients.push_back(std::move(gradient));
    }
    return gradients;
  }

  // Tells the reducer which parameters have got another dtype or shape since the previous step.
  void redefine_changed() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i];
      check(reducer_.gradients()[i].name, parameter);
      if (!is_defined_like(i, parameter)) {
        reducer_.redefine(i, *dtype_of(parameter.scalar_type()), parameter.sizes().vec());
      }
    }
  }

  // Returns whether the tensor has the dtype and shape with which the reducer reduces the gradient.
  bool is_defined_like(std::size_t index, const at::Tensor& tensor) const {
    const Tensor& gradient = reducer_.gradients()[index];
    return dtype_of(tensor.scalar_type()) == gradient.dtype && tensor.sizes() == gradient.shape;
  }

  // Announces the gradients that have not been announced. If one of them cannot be reduced, announces zeros instead,
  // because the other ranks wait for the tensor, and returns the first such error.
  std::exception_ptr announce_rest() {
    std::exception_ptr first_error;
    const auto attempt = [&first_error](const auto& call) {
      try {
        call();
        return true;
      } catch (...) {
        if (first_error == nullptr) first_error = std::current_exception();
        return false;
      }
    };
    if (!any_announced()) attempt([this] { redefine_changed(); });
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (announced_[i] != 0) continue;
      void* place = nullptr;
      if (!attempt([&] { place = place_of(i); })) {
        in_flight_[i] = at::zeros({static_cast<std::int64_t>(reducer_.gradients()[i].bytes())}, at::kByte);
        place = in_flight_[i].data_ptr();
      }
      attempt([&] {
        for (int pass = 0; pass < passes_; ++pass) reducer_.gradient_ready_at(i, place);
      });
    }
    return first_error;
  }

  // Returns the address of the parameter's gradient. Its elements are in row-major order and have the parameter's
  // dtype. They stay at this address during the step, even if the program drops the gradient.
  void* place_of(std::size_t index) {
    const ::torch::NoGradGuard no_grad;
    at::Tensor& gradient = parameters_[index].mutable_grad();
    if (!gradient.defined()) {
      gradient = at::zeros_like(parameters_[index], {}, at::MemoryFormat::Contiguous);
    } else if (gradient.layout() != at::kStrided) {
      throw invalid(owner_ + ": the gradient of '" + reducer_.gradients()[index].name +
                    "' is sparse: make its embedding with sparse(false)");
    } else if (!gradient.is_contiguous() || gradient.is_neg() ||
               gradient.scalar_type() != parameters_[index].scalar_type()) {
      gradient = gradient.detach().resolve_neg().to(parameters_[index].scalar_type()).contiguous();
    }
    if (!is_defined_like(index, gradient)) {
      throw invalid(owner_ + ": the gradient of '" + reducer_.gradients()[index].name +
                    "' has not the dtype and shape that its parameter had when the step began: drop the gradients when "
                    "the parameter changes, and change it between steps");
    }
    in_flight_[index] = gradient;
    return gradient.data_ptr();
  }

  const std::string owner_;
  const std::vector<at::Tensor> parameters_;
  std::vector<std::uint8_t> announced_;  // since the last step; not vector<bool>, because ranks exchange it
  std::vector<at::Tensor> in_flight_;    // the gradient of each announced parameter
  const int passes_;
  const ronda_context rank_;
  GradientReducer reducer_;
};

}  // namespace detail
}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_GRADIENT_REDUCER_HPP_
