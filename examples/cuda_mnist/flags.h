// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_FLAGS_H_
#define RONDA_EXAMPLES_CUDA_MNIST_FLAGS_H_

#include <string>
#include <vector>

#include "examples/lenet_mnist/flags.h"

namespace cuda_mnist {

// The values of lenet_mnist's flags, and of --bench.
struct Flags {
  enum class Work { kTrain, kBenchmark };

  lenet::Flags shared;
  Work work = Work::kTrain;
};

// Reads the flags. Throws lenet::UsageError, like lenet::ParseFlags().
Flags ParseFlags(std::vector<std::string> arguments);

// Returns the --help text.
std::string Usage();

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_FLAGS_H_
