#include "examples/lenet_mnist/sampler.h"

#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "examples/lenet_mnist/random.h"

namespace lenet {
namespace {

void Check(const ShardedSampler::Options& options) {
  const std::string batch = "a batch of " + std::to_string(options.batch_size) + " images ";
  if (options.batch_size == 0 || options.batch_size > options.samples) {
    throw std::invalid_argument(batch + "cannot be drawn from " + std::to_string(options.samples));
  }
  if (options.batch_size % options.size != 0) {
    throw std::invalid_argument(batch + "cannot be shared equally by " + std::to_string(options.size) +
                                " ranks: choose a multiple of " + std::to_string(options.size));
  }
}

}  // namespace

ShardedSampler::ShardedSampler(const Options& options) : options_(options) { Check(options_); }

void ShardedSampler::StartEpoch(std::size_t epoch) {
  order_.resize(options_.samples);
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  RandomNumbers random(options_.seed, epoch);
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
}

std::vector<std::size_t> ShardedSampler::Batch(std::size_t step) const {
  std::vector<std::size_t> batch;
  batch.reserve(options_.batch_size / options_.size);
  const std::size_t begin = step * options_.batch_size;
  for (std::size_t i = options_.rank; i < options_.batch_size; i += options_.size) batch.push_back(order_[begin + i]);
  return batch;
}

}  // namespace lenet
