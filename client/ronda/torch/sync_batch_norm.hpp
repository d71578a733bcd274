// SPDX-License-Identifier: Apache-2.0

// Batch normalization with the mean and variance over the batches of all ranks.
#ifndef RONDA_CLIENT_RONDA_TORCH_SYNC_BATCH_NORM_HPP_
#define RONDA_CLIENT_RONDA_TORCH_SYNC_BATCH_NORM_HPP_

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "../options.hpp"
#include "../process_set.hpp"
#include "collectives.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace torch {
namespace detail {

// The count, mean and variance of each channel over all ranks.
struct ChannelStatistics {
  at::Tensor mean;
  at::Tensor variance;  // the biased variance: divided by the count, not by the count minus one
  at::Tensor count;     // of numbers in a channel; a scalar
};

// Reshapes a tensor of shape (C) for arithmetic with a tensor of shape (N, C, ...).
inline at::Tensor per_channel(const at::Tensor& channels, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = -1;
  return channels.view(shape);
}

// Returns all dimensions of the input except the second, the channel dimension.
inline std::vector<std::int64_t> dimensions_of_channel(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t dimension = 2; dimension < input.dim(); ++dimension) dimensions.push_back(dimension);
  return dimensions;
}

inline at::Tensor widen(const at::Tensor& input) {
  return input.to(c10::promoteTypes(input.scalar_type(), at::kFloat));
}

// Combines the count, mean and sum of squared deviations of each rank as in Chan, Golub and LeVeque, "Updating formulae
// and a pairwise algorithm for computing sample variances", Stanford CS-TR-79-773, 1979. This method loses no precision
// if the mean is large. The tensors that the ranks exchange are unnamed: they are matched by their order, which is the
// same on every rank.
inline ChannelStatistics statistics_over_ranks(const at::Tensor& input, const CallOptions& call) {
  const at::Tensor wide = widen(input);
  const std::int64_t channels = input.size(1);
  const std::int64_t count = channels == 0 ? 0 : input.numel() / channels;
  const std::vector<std::int64_t> dimensions = dimensions_of_channel(input);
  const at::Tensor mean = count > 0 ? wide.mean(dimensions) : at::zeros({channels}, wide.options());
  const at::Tensor squares = (wide - per_channel(mean, wide)).square_().sum(dimensions);
  const at::Tensor own = at::cat({at::full({1}, static_cast<double>(count), wide.options()), mean, squares});
  const std::vector<at::Tensor> ranks =
      allgather("", own.unsqueeze(0), call).split_with_sizes({1, channels, channels}, 1);
  ChannelStatistics all;
  all.count = ranks[0].sum();
  const at::Tensor divisor = all.count.clamp_min(1);  // all batches may be empty
  all.mean = (ranks[0] * ranks[1]).sum(0) / divisor;
  all.variance = (ranks[2] + ranks[0] * (ranks[1] - all.mean).square()).sum(0) / divisor;
  return all;
}

// Computes (x - mean) / sqrt(variance + eps) * weight + bias. Backward sums its terms over all ranks, because mean and
// variance depend on the batches of all ranks.
class NormalizeOverRanks : public ::torch::autograd::Function<NormalizeOverRanks> {
 public:
  // Returns the output, followed by the mean, the variance and the count, from which the caller updates the running
  // statistics. `weight` and `bias` are optionals, because libtorch does not accept undefined tensors as arguments
  // here.
  static ::torch::autograd::variable_list forward(::torch::autograd::AutogradContext* context, const at::Tensor& input,
                                                  const c10::optional<at::Tensor>& weight,
                                                  const c10::optional<at::Tensor>& bias, double eps,
                                                  std::int64_t process_set) {
    const ChannelStatistics all = statistics_over_ranks(input, call_of(process_set));
    const at::Tensor scale = at::rsqrt(all.variance + eps);
    const at::Tensor normal = (input - per_channel(all.mean, input)) * per_channel(scale, input);
    context->save_for_backward({normal, weight.value_or(at::Tensor()), scale, all.count});
    context->saved_data["process_set"] = process_set;
    context->mark_non_differentiable({all.mean, all.variance, all.count});
    const at::Tensor output =
        weight ? normal * per_channel(*weight, input) + per_channel(*bias, input) : normal.clone();
    return {output.to(input.scalar_type()), all.mean, all.variance, all.count};
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   const ::torch::autograd::variable_list& gradients) {
    const ::torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor &normal = saved[0], &weight = saved[1], &scale = saved[2], &count = saved[3];
    const at::Tensor gradient = gradients[0].to(normal.scalar_type());
    const std::vector<std::int64_t> dimensions = dimensions_of_channel(normal);
    const at::Tensor of_bias = gradient.sum(dimensions);
    const at::Tensor of_weight = (gradient * normal).sum(dimensions);
    at::Tensor of_input;
    // Either all ranks need the input gradient or none does, because all ranks have the same modules.
    if (context->needs_input_grad(0)) {
      const CallOptions call = call_of(context->saved_data["process_set"].toInt());
      const at::Tensor sums = allreduce_("", at::stack({of_bias, of_weight}), {Op::Sum}, call) / count;
      const at::Tensor inner = gradient - per_channel(sums[0], normal) - normal * per_channel(sums[1], normal);
      const at::Tensor factor = weight.defined() ? scale * weight : scale;
      of_input = (inner * per_channel(factor, normal)).to(gradients[0].scalar_type());
    }
    if (!weight.defined()) return {of_input, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    return {of_input, of_weight.to(weight.scalar_type()), of_bias.to(weight.scalar_type()), at::Tensor(), at::Tensor()};
  }

 private:
  static CallOptions call_of(std::int64_t process_set) {
    CallOptions call;
    call.process_set = ProcessSet(static_cast<ronda_process_set>(process_set));
    return call;
  }
};

}  // namespace detail

// libtorch's BatchNorm for any number of dimensions, with the mean and variance over the batches of all ranks. The
// ranks together compute what a single process would compute for the combined batch. The parameters, buffers and
// options are the same as in BatchNorm, so each class can read files written by the other. Every rank of the process
// set must call forward() the same number of times. Batches may differ in size between ranks, and may be empty. In
// evaluation mode, the module computes the same as BatchNorm.
class SyncBatchNormImpl : public ::torch::nn::NormImplBase<2, SyncBatchNormImpl, ::torch::nn::BatchNormOptions> {
 public:
  explicit SyncBatchNormImpl(const ::torch::nn::BatchNormOptions& options, const ProcessSet& process_set = {})
      : NormImplBase(options), process_set_(process_set) {}

  // Normalizes `input`, of shape (N, C, ...). Throws libtorch's c10::Error for other shapes, and the errors of an
  // allgather.
  at::Tensor forward(const at::Tensor& input) {
    _check_input_dim(input);
    if (!is_training() && options.track_running_stats()) {
      return at::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/false, /*momentum=*/0,
                            options.eps(), /*cudnn_enabled=*/false);
    }
    const ::torch::autograd::variable_list results = detail::NormalizeOverRanks::apply(
        input, if_defined(weight), if_defined(bias), options.eps(), std::int64_t{process_set_.id()});
    if (is_training() && options.track_running_stats()) track(results[1], results[2], results[3]);
    return results[0];
  }

  // Uses the parameters and buffers of `batch_norm`.
  template <class BatchNorm>
  void share(const BatchNorm& batch_norm) {
    if (options.affine()) {
      weight = parameters_["weight"] = batch_norm.weight;
      bias = parameters_["bias"] = batch_norm.bias;
    }
    if (options.track_running_stats()) {
      running_mean.set_data(batch_norm.running_mean);
      running_var.set_data(batch_norm.running_var);
      num_batches_tracked.set_data(batch_norm.num_batches_tracked);
    }
    train(batch_norm.is_training());
  }

  void pretty_print(std::ostream& stream) const override {
    stream << "ronda::torch::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ")";
  }

 protected:
  void _check_input_dim(const at::Tensor& input) override {
    TORCH_CHECK(input.dim() >= 2 && input.size(1) == options.num_features(), "SyncBatchNorm: the input has shape ",
                input.sizes(), ": it must be (N, ", options.num_features(), ", ...)");
  }

 private:
  static c10::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
    return tensor.defined() ? c10::optional<at::Tensor>(tensor) : c10::nullopt;
  }

  // Updates the running statistics as libtorch does, with the unbiased variance (divided by the count minus one). If
  // all batches are empty, only counts the batch.
  void track(const at::Tensor& mean, const at::Tensor& variance, const at::Tensor& count) {
    const ::torch::NoGradGuard no_grad;
    num_batches_tracked += 1;
    if (count.item<double>() == 0) return;
    const double momentum = options.momentum().value_or(1.0 / num_batches_tracked.item<double>());
    const at::Tensor unbiased = variance * (count / (count - 1).clamp_min(1));
    running_mean.lerp_(mean.to(running_mean.scalar_type()), momentum);
    running_var.lerp_(unbiased.to(running_var.scalar_type()), momentum);
  }

  ProcessSet process_set_;
};

// The libtorch module holder (a shared pointer) for SyncBatchNormImpl.
class SyncBatchNorm : public ::torch::nn::ModuleHolder<SyncBatchNormImpl> {
 public:
  using ::torch::nn::ModuleHolder<SyncBatchNormImpl>::ModuleHolder;
  using Impl = SyncBatchNormImpl;
};

namespace detail {

// Returns the SyncBatchNorm that replaces `module`, or null if `module` is not a BatchNorm.
inline std::shared_ptr<SyncBatchNormImpl> synchronized_form(const ::torch::nn::Module& module,
                                                            const ProcessSet& process_set) {
  const auto convert = [&](const auto* batch_norm) {
    auto converted = std::make_shared<SyncBatchNormImpl>(batch_norm->options, process_set);
    converted->share(*batch_norm);
    return converted;
  };
  if (const auto* flat = module.as<::torch::nn::BatchNorm1d>()) return convert(flat);
  if (const auto* plane = module.as<::torch::nn::BatchNorm2d>()) return convert(plane);
  if (const auto* volume = module.as<::torch::nn::BatchNorm3d>()) return convert(volume);
  return nullptr;
}

// If `do_convert` is set, converts the BatchNorms in each Sequential. Otherwise only looks for modules that cannot be
// converted.
inline void convert_children(::torch::nn::Module& module, const std::string& path, const ProcessSet& process_set,
                             bool do_convert) {
  auto* const sequential = module.as<::torch::nn::Sequential>();
  std::size_t index = 0;
  for (const auto& child : module.named_children()) {
    const std::string name = path + child.key();
    const std::size_t position = index++;
    const std::shared_ptr<SyncBatchNormImpl> converted = synchronized_form(*child.value(), process_set);
    if (converted == nullptr) {
      convert_children(*child.value(), name + ".", process_set, do_convert);
    } else if (sequential == nullptr) {
      throw invalid("convert_sync_batchnorm: '" + name +
                    "' is a member of a class, which keeps its type: declare it there as ronda::torch::SyncBatchNorm");
    } else if (do_convert) {
      *(sequential->begin() + static_cast<std::ptrdiff_t>(position)) = ::torch::nn::AnyModule(converted);
      sequential->replace_module(child.key(), converted);
    }
  }
}

}  // namespace detail

// Replaces each BatchNorm in a Sequential, which may be `module` itself or nested in it, by a SyncBatchNorm. Each
// SyncBatchNorm shares the parameters and buffers of the BatchNorm that it replaces, so an optimizer of these
// parameters keeps working. `module` is a shared_ptr to a module, or a holder. A BatchNorm that is a data member of one
// of the program's classes cannot be replaced, because C++ fixes the member's type.
// Throws Error (RONDA_ERROR_INVALID_ARGUMENT) with the name of the first such member; nothing is replaced in that case.
template <class Module>
void convert_sync_batchnorm(const std::shared_ptr<Module>& module, const ProcessSet& process_set = {}) {
  for (const bool do_convert : {false, true}) detail::convert_children(*module, "", process_set, do_convert);
}
template <class Module>
void convert_sync_batchnorm(const ::torch::nn::ModuleHolder<Module>& module, const ProcessSet& process_set = {}) {
  convert_sync_batchnorm(module.ptr(), process_set);
}

}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_SYNC_BATCH_NORM_HPP_
