#ifndef RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_
#define RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_

#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/parameters.h"

namespace cuda_mnist {

inline constexpr char kTrainsOnCpus[] = "examples/lenet_mnist/lenet_mnist";

// Trains with `program`, which has the flags of lenet_mnist, for a few steps: enough for a schedule to be locked, so
// that gradients go without being negotiated. Returns the parameters; fails the test if it does not end well.
lenet::Parameters Train(const std::string& program, int ranks, const std::vector<std::string>& environment);

// That these are the parameters that lenet_mnist has after the same steps, but for rounding.
void ExpectThoseOfTheCpu(const lenet::Parameters& parameters);

}  // namespace cuda_mnist

#endif  // RONDA_TESTS_EXAMPLES_CUDA_MNIST_TRAINING_H_
