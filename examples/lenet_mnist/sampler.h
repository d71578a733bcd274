#ifndef RONDA_EXAMPLES_LENET_MNIST_SAMPLER_H_
#define RONDA_EXAMPLES_LENET_MNIST_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lenet {

// Deals the samples of a data set out to the ranks, in a new random order each epoch.
//
// Every rank draws the same permutation, from the seed and the epoch; step s of an epoch is about the samples at
// [s * batch_size, (s + 1) * batch_size) of it, of which a rank takes every size-th. So the global batch does not
// depend on the number of ranks, no sample is seen twice in an epoch, and all ranks take the same number of steps. What
// is left over at the end of an epoch is left out; the next epoch's permutation leaves out others.
//
// Thread-compatible.
class ShardedSampler {
 public:
  struct Options {
    std::size_t samples = 0;     // in the data set
    std::size_t batch_size = 0;  // samples a step, over all ranks
    std::size_t rank = 0;
    std::size_t size = 1;  // number of ranks
    std::uint64_t seed = 0;
  };

  // Throws std::invalid_argument, with text for the user, unless `size` divides `batch_size` and 0 < batch_size <=
  // samples.
  explicit ShardedSampler(const Options& options);

  std::size_t steps_per_epoch() const { return options_.samples / options_.batch_size; }

  // Draws epoch `epoch`'s permutation.
  void StartEpoch(std::size_t epoch);

  // The indices of this rank's samples in step `step` of the epoch: batch_size / size of them.
  //
  // REQUIRES: StartEpoch() has been called; step < steps_per_epoch().
  std::vector<std::size_t> Batch(std::size_t step) const;

 private:
  const Options options_;
  std::vector<std::size_t> order_;
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_SAMPLER_H_
