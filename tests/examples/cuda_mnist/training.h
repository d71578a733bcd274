// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_
#define RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_

#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/parameters.h"

namespace cuda_mnist {

inline constexpr char kTrainsOnCpus[] = "examples/lenet_mnist/lenet_mnist";

// Trains for a few steps with `program`, which has the flags of lenet_mnist. The steps are enough to lock a schedule,
// so that later gradients are not negotiated. Returns the parameters. If the program fails, the test fails.
lenet::Parameters Train(const std::string& program, int ranks, const std::vector<std::string>& environment);

// Expects the parameters that lenet_mnist has after the same steps, except for rounding.
void ExpectThoseOfTheCpu(const lenet::Parameters& parameters);

}  // namespace cuda_mnist

#endif  // RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_
