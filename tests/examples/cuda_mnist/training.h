// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_
#define RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_

#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/parameters.h"

namespace cuda_mnist {

inline constexpr char kTrainsOnCpus[] = "examples/lenet_mnist/lenet_mnist";

// Trains with `program`, which has the flags of lenet_mnist, for enough steps that Ronda locks a schedule and no longer
// negotiates. Returns the parameters. If the program fails, fails the test.
lenet::Parameters Train(const std::string& program, int ranks, const std::vector<std::string>& environment);

// Expects `parameters` to equal those of lenet_mnist after the same steps, except for rounding.
void ExpectThoseOfTheCpu(const lenet::Parameters& parameters);

}  // namespace cuda_mnist

#endif  // RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_
