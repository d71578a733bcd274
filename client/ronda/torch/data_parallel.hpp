// SPDX-License-Identifier: Apache-2.0

// Data-parallel training for libtorch modules, like PyTorch's DistributedDataParallel.
#ifndef RONDA_CLIENT_RONDA_TORCH_DATA_PARALLEL_HPP_
#define RONDA_CLIENT_RONDA_TORCH_DATA_PARALLEL_HPP_

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "../gradient_reducer.hpp"
#include "../job.hpp"
#include "../options.hpp"
#include "../reductions.hpp"
#include "../synchronization.hpp"
#include "../tensor.hpp"
#include "../threads.hpp"
#include "gradient_reducer.hpp"
#include "parameters.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace torch {

struct DistributedDataParallelOptions {
  int root = 0;                   // the rank whose parameters and buffers all ranks start with
  bool broadcast_buffers = true;  // copies root's buffers (BatchNorm has some) before each forward() in training

  // With find_unused_parameters, a parameter that no rank has used keeps its previous gradient. Often that gradient is
  // undefined, so the optimizer leaves the parameter unchanged. The option costs a small allreduce per step. Without
  // the option, such a parameter gets a gradient of zeros.
  bool find_unused_parameters = false;

  // With uneven_inputs, ranks may have different numbers of batches, and call join() after their last one. Before each
  // buffer broadcast, a small allreduce finds the highest rank that has not joined; that rank's buffers are broadcast.
  bool uneven_inputs = false;

  // How gradients are reduced. `backward_passes_per_step` must be 1; use no_sync() for several passes. With
  // `skip_on_overflow`, the program itself must skip its optimizer step when overflowed() returns true.
  DistributedOptimizerOptions reduction = {};
};

// Wraps a module, and gives every rank the same initial parameters. Gradients are reduced while backward() still
// computes other gradients. When backward() returns, all gradients have been averaged over the ranks. The program uses
// its own optimizer.
//
//   ronda::torch::DistributedDataParallel model(net);            // net: a holder or a shared_ptr
//   torch::optim::Adam adam(net->parameters(), 1e-3);
//   for (...) {
//     adam.zero_grad();
//     loss(model(batch), targets).backward();
//     adam.step();
//   }
//
// Every rank must have the same module, in host memory, and make the same calls. In each backward(), at least one
// parameter must take part on every rank. Parameters that are frozen when this object is created do not take part.
// Between two steps, all ranks may give parameters another dtype or shape (to(), set_data()).
// Gradients are reduced in place, without copies. backward() throws Error if a gradient cannot be reduced. After a
// backward() that threw, for instance on this rank alone, the next forward() submits the tensors for which the other
// ranks wait, and drops this rank's gradients. The gradients of the other ranks are then undefined for this step.
//
// Thread-compatible. The destructor waits for operations in flight.
template <class Module>
class DistributedDataParallel {
 public:
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) in the same cases as DistributedOptimizer, and the errors of
  // broadcast_parameters().
  explicit DistributedDataParallel(std::shared_ptr<Module> module, const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)),
        options_(options),
        gradients_("DistributedDataParallel", module_->named_parameters(), options.reduction),
        hooks_(gradients_.parameters(), this) {
    if (options.reduction.backward_passes_per_step != 1) {
      throw detail::invalid(
          "DistributedDataParallel: backward_passes_per_step is for DistributedOptimizer: use no_sync()");
    }
    broadcast_parameters(module_, options.root, options.reduction.call);
  }
  explicit DistributedDataParallel(const ::torch::nn::ModuleHolder<Module>& module,
                                   const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), options) {}

  // Not copyable, because the hooks refer to this object.
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Calls the module's forward(). In training mode, first broadcasts the module's buffers.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    if (synchronizes_ && gradients_.any_announced()) finish_failed_backward();
    hooks_.renew();
    if (options_.broadcast_buffers && synchronizes_ && module_->is_training()) broadcast_buffers();
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  // While the returned object exists, backward() only accumulates this rank's gradients and does not reduce them. The
  // first backward() after that reduces the accumulated gradients.
  //
  //   { const auto guard = model.no_sync();  loss(model(first), ...).backward(); }
  //   loss(model(second), ...).backward();
  class NoSync {
   public:
    explicit NoSync(bool* synchronizes) : synchronizes_(synchronizes), before_(std::exchange(*synchronizes, false)) {}
    ~NoSync() { *synchronizes_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    bool* const synchronizes_;
    const bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(&synchronizes_); }

  // Must be called when this rank has no more batches. The reductions of the other ranks then continue without this
  // rank until all ranks have joined. After that, this rank gets the parameters and buffers of the rank that joined
  // last, because it has missed steps. Averages do not count ranks that have joined, unless `absent` says otherwise.
  // Returns the rank that joined last. A program that continues training must also broadcast the optimizer state from
  // that rank.
  int join(Absent absent = Absent::not_counted) {
    const int last = ronda::join(options_.reduction.call.process_set, absent);
    broadcast_parameters(module_, last, options_.reduction.call);
    return last;
  }

  // With skip_on_overflow, these functions work as in ronda::DistributedOptimizer, for the last backward().
  bool overflowed() const noexcept { return gradients_.reducer().overflowed(); }
  std::string_view overflowed_gradient() const noexcept { return gradients_.reducer().overflowed_gradient(); }

  // Returns the gradients of the parameters that take part, with the addresses they had in the last backward().
  const std::vector<Tensor>& gradients() const noexcept { return gradients_.reducer().gradients(); }

  const std::shared_ptr<Module>& module() const noexcept { return module_; }
  Module* operator->() const noexcept { return module_.get(); }

 private:
  using Hooks = detail::GradientHooks<DistributedDataParallel>;
  friend Hooks;

  void gradient_accumulated(std::size_t index) {
    if (!synchronizes_) return;
    const bool is_first = !gradients_.any_announced();
    gradients_.gradient_accumulated(index);
    // Makes libtorch call backward_ends() in this thread, after all nodes of the graph.
    if (is_first) ::torch::autograd::Engine::get_default_engine().queue_callback([this] { backward_ends(); });
  }

  // After a backward() that threw, submits the rest of this rank's gradients, because the other ranks wait for them.
  // Then drops this rank's gradients.
  void finish_failed_backward() {
    try {
      backward_ends();
    } catch (const Error&) {  // backward() has thrown already
    }
    for (const at::Tensor& parameter : gradients_.parameters()) parameter.mutable_grad() = at::Tensor();
  }

  void backward_ends() {
    if (!options_.find_unused_parameters) {
      gradients_.step();
      return;
    }
    std::vector<std::uint8_t> used = gradients_.announced();
    std::vector<std::uint8_t> has_none(used.size());
    for (std::size_t i = 0; i < used.size(); ++i) {
      has_none[i] = gradients_.parameters()[i].grad().defined() ? 0 : 1;
    }
    const Handle agreement =
        allreduce_async(tensor("DistributedDataParallel.used", used), {Op::Max}, options_.reduction.call);
    gradients_.step();
    agreement.synchronize();
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i] == 0 && has_none[i] != 0) gradients_.parameters()[i].mutable_grad() = at::Tensor();
    }
  }

  void broadcast_buffers() {
    const NamedTensors buffers = module_->named_buffers();
    if (buffers.is_empty()) return;
    int root = options_.root;
    if (options_.uneven_inputs) {
      root = ronda::rank();
      allreduce(tensor("DistributedDataParallel.root", &root), {Op::Max}, options_.reduction.call);
    }
    broadcast_parameters(buffers, root, options_.reduction.call);
  }

  const std::shared_ptr<Module> module_;
  const DistributedDataParallelOptions options_;
  bool synchronizes_ = true;
  detail::ParameterReducer gradients_;
  Hooks hooks_;
};

namespace detail {

// Returns a copy of the module with parameters of its own. The copy has the same frozen parameters, and the same
// submodules in training mode.
template <class Module>
std::shared_ptr<Module> copy_of(const Module& module) {
  std::shared_ptr<Module> copy = std::dynamic_pointer_cast<Module>(module.clone());
  if (copy == nullptr) throw invalid("data_parallel: clone() of the module has returned a module of another type");
  const NamedTensors parameters = module.named_parameters();
  for (auto& item : copy->named_parameters()) item.value().requires_grad_(parameters[item.key()].requires_grad());
  const auto parts = module.modules();
  const auto copies = copy->modules();  // in the same order: a part comes before its own parts, which train() also sets
  for (std::size_t i = 0; i < parts.size(); ++i) copies[i]->train(parts[i]->is_training());
  return copy;
}

}  // namespace detail

// Trains a module on `ranks` threads of this process. Each thread runs `body` as a rank of a job (run_threads). On
// CPUs, this replaces PyTorch's nn.DataParallel; it needs no launcher.
//
//   ronda::torch::data_parallel(4, net, [&](auto& model) {       // a DistributedDataParallel
//     torch::optim::SGD sgd(model->parameters(), 0.1);
//     ronda::torch::DistributedSampler sampler(dataset.size().value());  // this thread's share
//     ...
//       loss(model(batch.data), batch.target).backward();
//       sgd.step();
//   });
//
// Rank 0 trains `module` itself, so `module` holds the result. The other ranks train copies of `module`, which must
// therefore be a Cloneable, like libtorch's own modules. libtorch's threads are divided among the ranks. As in
// run_threads(), the calling thread is not a rank.
//
// Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if `ranks` is below 1 or an option of DistributedDataParallel is invalid.
// Also throws the first exception that leaves `body`, and libtorch's exception for a module without clone().
template <class Module, class Body>
void data_parallel(int ranks, const std::shared_ptr<Module>& module, const Body& body,
                   const DistributedDataParallelOptions& options = {}, const Options& job = {}) {
  std::vector<std::shared_ptr<Module>> modules = {module};
  for (int rank = 1; rank < ranks; ++rank) modules.push_back(detail::copy_of(*module));
  const int threads = std::max(at::get_num_threads() / std::max(ranks, 1), 1);
  run_threads(
      ranks,
      [&] {
        at::set_num_threads(threads);
        DistributedDataParallel<Module> model(modules[static_cast<std::size_t>(ronda::rank())], options);
        body(model);
      },
      job);
}
template <class Module, class Body>
void data_parallel(int ranks, const ::torch::nn::ModuleHolder<Module>& module, const Body& body,
                   const DistributedDataParallelOptions& options = {}, const Options& job = {}) {
  data_parallel(ranks, module.ptr(), body, options, job);
}

}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_DATA_PARALLEL_HPP_
