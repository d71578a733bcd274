// SPDX-License-Identifier: Apache-2.0

// A sampler that gives each rank its share of a libtorch dataset.
#ifndef RONDA_CLIENT_RONDA_TORCH_SAMPLER_HPP_
#define RONDA_CLIENT_RONDA_TORCH_SAMPLER_HPP_

#include <torch/data/samplers/base.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../training/sampler.hpp"
#include "tensor.hpp"

namespace ronda {
inline namespace abi1 {
namespace torch {

using training::DistributedSamplerOptions;
using training::DistributedSamplerState;
using training::Tail;

// Adapts training::DistributedSampler to libtorch's data loaders.
//
//   ronda::torch::DistributedSampler sampler(dataset.size().value());
//   auto loader = torch::data::make_data_loader(std::move(dataset), sampler, /*batch_size=*/32);
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     sampler.set_epoch(epoch);
//     for (auto& batch : *loader) ...
//   }
//
// All copies of a sampler share one state, so calls on the program's sampler also affect the loader's copy. A loader
// with workers takes samples in advance; state() counts these as taken.
//
// Thread-compatible. A loader calls the sampler in the thread that iterates over the loader.
class DistributedSampler : public ::torch::data::samplers::Sampler<> {
 public:
  // As in training::DistributedSampler.
  explicit DistributedSampler(std::size_t size, const DistributedSamplerOptions& options = {})
      : shared_(std::make_shared<Shared>(training::DistributedSampler(static_cast<std::int64_t>(size), options))) {}
  DistributedSampler(std::size_t size, int rank, int ranks, const DistributedSamplerOptions& options = {})
      : shared_(std::make_shared<Shared>(
            training::DistributedSampler(static_cast<std::int64_t>(size), rank, ranks, options))) {}

  // Sets the epoch of the loader's next iteration. Without set_epoch(), each iteration repeats the same epoch in the
  // same order.
  void set_epoch(std::int64_t epoch) { shared_->sampler.set_epoch(epoch); }

  // Returns how many more samples this rank gets in this epoch; the number is the same on every rank.
  std::size_t remaining() const noexcept { return static_cast<std::size_t>(shared_->sampler.remaining()); }

  DistributedSamplerState state() const noexcept { return shared_->sampler.state(); }

  // Makes the loader's next iteration continue from `state`.
  void set_state(const DistributedSamplerState& state) {
    shared_->sampler.set_state(state);
    shared_->is_resumed = true;
  }

  // Called by the loader, like next(). reset() restarts the epoch, unless the program has just called set_state().
  // reset() throws Error (RONDA_ERROR_INVALID_ARGUMENT) if the dataset's size has changed, which requires a new
  // sampler.
  void reset(::torch::optional<std::size_t> new_size = ::torch::nullopt) override {
    const auto size = static_cast<std::size_t>(shared_->sampler.size());
    if (new_size.value_or(size) != size) {
      throw detail::invalid("DistributedSampler: the dataset has " + std::to_string(*new_size) +
                            " samples instead of " + std::to_string(size) + ": make a new sampler");
    }
    if (!std::exchange(shared_->is_resumed, false)) shared_->sampler.set_epoch(state().epoch);
  }

  ::torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
    const std::vector<std::int64_t> batch = shared_->sampler.next(batch_size);
    if (batch.empty()) return ::torch::nullopt;
    return std::vector<std::size_t>(batch.begin(), batch.end());
  }

  void save(::torch::serialize::OutputArchive& archive) const override {
    archive.write("epoch", at::IValue(state().epoch));
    archive.write("consumed", at::IValue(state().consumed));
  }

  void load(::torch::serialize::InputArchive& archive) override {
    at::IValue epoch, consumed;
    archive.read("epoch", epoch);
    archive.read("consumed", consumed);
    set_state({epoch.toInt(), consumed.toInt()});
  }

 private:
  struct Shared {
    explicit Shared(training::DistributedSampler&& sampler) : sampler(std::move(sampler)) {}

    training::DistributedSampler sampler;
    bool is_resumed = false;
  };

  std::shared_ptr<Shared> shared_;
};

}  // namespace torch
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TORCH_SAMPLER_HPP_
