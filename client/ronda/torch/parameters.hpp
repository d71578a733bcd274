// SPDX-License-Identifier: Apache-2.0

// Copies parameters and optimizer state from one rank to every rank when training begins or resumes.
#ifndef RONDA_CLIENT_RONDA_TORCH_PARAMETERS_HPP_
#define RONDA_CLIENT_RONDA_TORCH_PARAMETERS_HPP_

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "../job.hpp"
#include "../objects.hpp"
#include "../optimizer.hpp"
#include "../options.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace torch {

// A list of named tensors, as returned by module->named_parameters().
using NamedTensors = ::torch::OrderedDict<std::string, at::Tensor>;

namespace detail {

inline const ::torch::nn::Module& module_of(const ::torch::nn::Module& module) { return module; }
template <class Module>
const ::torch::nn::Module& module_of(const std::shared_ptr<Module>& module) {
  return *module;
}
template <class Module>
const ::torch::nn::Module& module_of(const ::torch::nn::ModuleHolder<Module>& module) {
  return *module;
}

// Returns each defined tensor once, even if a module has it under several names.
inline NamedTensors distinct(const NamedTensors& tensors) {
  NamedTensors distinct;
  std::unordered_set<const void*> seen;
  for (const auto& item : tensors) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      distinct.insert(item.key(), item.value());
    }
  }
  return distinct;
}

// LBFGS has a list of tensors, al, whose tail is undefined, and libtorch cannot save undefined tensors. This function
// therefore defines them. Their values do not matter, because LBFGS writes each tensor before it reads it.
inline void fill_scratch(::torch::optim::Optimizer* optimizer) {
  for (auto& item : optimizer->state()) {
    auto* const state = dynamic_cast<::torch::optim::LBFGSParamState*>(item.second.get());
    if (state == nullptr || !state->al()) continue;
    for (at::Tensor& element : *state->al()) {
      if (!element.defined()) element = at::zeros({1});
    }
  }
}

inline std::string save_optimizer(::torch::optim::Optimizer& optimizer) {
  fill_scratch(&optimizer);
  ::torch::serialize::OutputArchive archive;
  ::torch::serialize::OutputArchive state(archive.compilation_unit());
  optimizer.save(state);
  archive.write("optimizer", state);
  // libtorch 1.13's load() ignores the group options written by save(), so this function saves the options as well.
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    ::torch::serialize::OutputArchive options(archive.compilation_unit());
    optimizer.param_groups()[i].options().serialize(options);
    archive.write("options" + std::to_string(i), options);
  }
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

inline void load_optimizer(const std::string& bytes, ::torch::optim::Optimizer* optimizer) {
  std::istringstream stream(bytes);
  ::torch::serialize::InputArchive archive;
  archive.load_from(stream);
  ::torch::serialize::InputArchive state;
  archive.read("optimizer", state);
  optimizer->state().clear();  // load() adds to it
  optimizer->load(state);
  for (std::size_t i = 0; i < optimizer->param_groups().size(); ++i) {
    ::torch::serialize::InputArchive options;
    archive.read("options" + std::to_string(i), options);
    optimizer->param_groups()[i].options().serialize(options);
  }
}

}  // namespace detail

// Copies the tensors of rank `root` to all ranks, all at the same time. Every rank must pass the same names, shapes and
// dtypes.
inline void broadcast_parameters(const NamedTensors& tensors, int root = 0, const CallOptions& call = {}) {
  std::vector<detail::Rows> rows;
  std::vector<Tensor> views;
  for (const auto& item : detail::distinct(tensors)) {
    const std::string name = "broadcast." + item.key();
    rows.emplace_back(name, item.value());
    views.push_back(view(name, rows.back().get()));
  }
  ronda::broadcast_parameters(views, root, call);
  for (const detail::Rows& written : rows) written.written();
}

// Copies all parameters and buffers of a module from rank `root` to all ranks. `module` is a Module, a shared_ptr to
// one, or a holder such as nn::Linear.
template <class Module>
void broadcast_parameters(const Module& module, int root = 0, const CallOptions& call = {}) {
  const ::torch::nn::Module& whole = detail::module_of(module);
  NamedTensors tensors = whole.named_parameters();
  // update() overwrites nothing, because a parameter and a buffer of a module cannot have the same name.
  tensors.update(whole.named_buffers());
  broadcast_parameters(tensors, root, call);
}

// Copies an optimizer's state (momentum, moments, step counters) and options (learning rates, ...) from rank `root` to
// all ranks. On all ranks, the optimizers must have the same class, and parameters with the same shapes in the same
// groups. Works for all of libtorch's optimizers. Other optimizers need save(), load(), and options with serialize().
// Errors: the errors of broadcast_object(); RONDA_ERROR_INVALID_ARGUMENT on every rank, with root's error text, if
// root's state cannot be saved. Does not catch exceptions thrown by the optimizer's load().
inline void broadcast_optimizer_state(::torch::optim::Optimizer& optimizer, int root = 0,
                                      const CallOptions& call = {}) {
  const bool is_root = ronda::rank() == root;
  std::string message;  // 's' and the state, or 'e' and the error
  if (is_root) {
    try {
      message = "s" + detail::save_optimizer(optimizer);
    } catch (const c10::Error& error) {
      message = std::string("e") + error.what_without_backtrace();
    } catch (const std::exception& error) {
      message = std::string("e") + error.what();
    }
  }
  message = ronda::broadcast_object("broadcast.optimizer_state", message, root, call);
  const std::string content = message.substr(1);
  if (message[0] == 'e') {
    throw detail::invalid("broadcast_optimizer_state: the state of rank " + std::to_string(root) +
                          " cannot be saved: " + content);
  }
  if (!is_root) detail::load_optimizer(content, &optimizer);
}

}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_PARAMETERS_HPP_
