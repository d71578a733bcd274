// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_BENCH_H_
#define RONDA_EXAMPLES_CUDA_MNIST_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/trainer.h"
#include "examples/lenet_mnist/mnist.h"

namespace cuda_mnist {

// Returns `count` synthetic digits: random pixels and random labels, the same on every rank.
lenet::MnistImages MadeUpDigits(std::size_t count);

// The training speed over all ranks, with and without communication. Each figure is the median of several measurements;
// the two kinds of measurement alternate.
struct BenchResult {
  double images_per_second = 0;
  double images_per_second_alone = 0;  // with gradients that stay on their ranks
  std::uint64_t control_messages = 0;  // sent by this rank meanwhile; 0 while its steps are locked

  // Returns the fraction by which communication lengthens a step.
  double overhead() const { return images_per_second_alone / images_per_second - 1; }
  std::string text() const;
};

struct BenchOptions {
  std::size_t steps = 100;  // of one measurement
  int measurements = 7;     // of each kind
};

// Must be called on every rank. With one rank, the difference between the two speeds is the cost of
// DistributedOptimizer. REQUIRES: the trainer's epochs have at least one step.
BenchResult RunBench(const BenchOptions& options, Device& device, Trainer& trainer);

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_BENCH_H_
