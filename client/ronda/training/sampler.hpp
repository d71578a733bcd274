// SPDX-License-Identifier: Apache-2.0

// Chooses the samples of a dataset on which each rank trains.
#ifndef RONDA_CLIENT_RONDA_TRAINING_SAMPLER_HPP_
#define RONDA_CLIENT_RONDA_TRAINING_SAMPLER_HPP_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../job.hpp"
#include "../status.hpp"
#include "random.hpp"

namespace ronda {
inline namespace abi1 {
namespace training {

// What happens at the end of an epoch if fewer samples are left than there are ranks.
enum class Tail {
  repeat,  // pad with samples from the start of the epoch: all ranks get the same number, and every sample is used
  drop,    // leave out the last samples: all ranks get the same number, and no sample is used twice
};

struct DistributedSamplerOptions {
  bool shuffle = true;     // a new order in each epoch, the same on every rank; false: the order of the dataset
  std::uint64_t seed = 0;  // the same on every rank
  Tail tail = Tail::repeat;
};

// The position of a DistributedSampler within its dataset, for a checkpoint. It is trivially copyable, and the same on
// every rank.
struct DistributedSamplerState {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of the epoch that the ranks have taken together
};

// Distributes the samples 0 to size - 1 of a dataset over the ranks, epoch by epoch. The order of an epoch depends only
// on the seed and the epoch number. Among n ranks, rank r takes every n-th sample in the order of the epoch, beginning
// at position r (from 0).
//
//   ronda::training::DistributedSampler sampler(60000);
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     sampler.set_epoch(epoch);
//     while (const auto batch = sampler.next(32); !batch.empty()) train(batch);
//   }
//
// state() says how many samples all ranks together have taken. A job resumed from this state continues with the next
// sample, even if the number of ranks has changed. Save the state between steps, when all ranks have taken the same
// number of samples.
//
// Thread-compatible.
class DistributedSampler {
 public:
  // Creates the sampler of this rank, for a dataset of `size` samples.
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT if size is negative; RONDA_ERROR_NOT_INITIALIZED).
  explicit DistributedSampler(std::int64_t size, const DistributedSamplerOptions& options = {})
      : DistributedSampler(size, ronda::rank(), ronda::size(), options) {}

  // Creates the sampler of rank `rank` in a job of `ranks` ranks.
  DistributedSampler(std::int64_t size, int rank, int ranks, const DistributedSamplerOptions& options = {})
      : options_(options), rank_(rank), ranks_(ranks) {
    if (size < 0) throw invalid("there cannot be " + std::to_string(size) + " samples");
    if (ranks < 1 || rank < 0 || rank >= ranks) {
      throw invalid("there is no rank " + std::to_string(rank) + " among " + std::to_string(ranks));
    }
    order_.resize(static_cast<std::size_t>(size));
    set_epoch(0);
  }

  // Begins epoch number `epoch`, which must be at least 0.
  void set_epoch(std::int64_t epoch) { set_state({epoch, 0}); }

  // Returns this rank's next sample, or nullopt at the end of the epoch.
  std::optional<std::int64_t> next() {
    const std::int64_t left = size() - state_.consumed;
    if (left <= 0 || (options_.tail == Tail::drop && left < ranks_)) return std::nullopt;
    const std::int64_t at = (state_.consumed + rank_) % size();
    state_.consumed += ranks_;
    return order_[static_cast<std::size_t>(at)];
  }

  // Returns this rank's next `count` samples, or fewer at the end of the epoch.
  std::vector<std::int64_t> next(std::size_t count) {
    std::vector<std::int64_t> batch;
    batch.reserve(count);
    while (batch.size() < count) {
      const std::optional<std::int64_t> sample = next();
      if (!sample) break;
      batch.push_back(*sample);
    }
    return batch;
  }

  // Returns how many more samples this rank gets in this epoch; the number is the same on every rank.
  std::int64_t remaining() const noexcept {
    const std::int64_t left = size() - state_.consumed;
    if (left <= 0) return 0;
    return (options_.tail == Tail::drop ? left : left + ranks_ - 1) / ranks_;
  }

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(order_.size()); }
  DistributedSamplerState state() const noexcept { return state_; }

  // Continues from `state`, which must come from a sampler of the same dataset with the same options.
  // Throws Error (RONDA_ERROR_INVALID_ARGUMENT) if a number is negative.
  void set_state(const DistributedSamplerState& state) {
    if (state.epoch < 0 || state.consumed < 0) {
      throw invalid("epoch " + std::to_string(state.epoch) + " with " + std::to_string(state.consumed) +
                    " samples taken is no state");
    }
    order_ = detail::order_of_epoch(size(), state.epoch,
                                    options_.shuffle ? detail::EpochOrder::shuffled : detail::EpochOrder::ascending,
                                    options_.seed);
    state_ = state;
  }

 private:
  static Error invalid(const std::string& what) {
    return Error(RONDA_ERROR_INVALID_ARGUMENT, "DistributedSampler: " + what);
  }

  const DistributedSamplerOptions options_;
  const int rank_;
  const int ranks_;
  std::vector<std::int64_t> order_;  // of the epoch
  DistributedSamplerState state_;
};

}  // namespace training
}  // namespace abi1
}  // namespace ronda

#endif  // RONDA_CLIENT_RONDA_TRAINING_SAMPLER_HPP_
