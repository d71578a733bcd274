#ifndef RONDA_EXAMPLES_LENET_MNIST_BATCH_H_
#define RONDA_EXAMPLES_LENET_MNIST_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/lenet_mnist/layers.h"
#include "examples/lenet_mnist/mnist.h"

namespace lenet {

struct Batch {
  Matrix images;  // a row each; 0 is background, 1 is ink
  std::vector<std::uint8_t> labels;
};

// Copies the images at `indices` out of `data`.
//
// REQUIRES: every index is below data.size().
Batch GatherBatch(const MnistImages& data, const std::vector<std::size_t>& indices);

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_BATCH_H_
