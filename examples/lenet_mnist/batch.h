// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_BATCH_H_
#define RONDA_EXAMPLES_LENET_MNIST_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/lenet_mnist/layers.h"
#include "examples/lenet_mnist/mnist.h"

namespace lenet {

struct Batch {
  Matrix images;  // one row per image; 0 is background, 1 is ink
  std::vector<std::uint8_t> labels;
};

// Copies the images at `indices` out of `data`.
//
// REQUIRES: 0 <= every index < data.size().
Batch GatherBatch(const MnistImages& data, const std::vector<std::int64_t>& indices);

// Returns how many images each of `ranks` ranks gets from a batch of `batch_size` images.
//
// Throws std::invalid_argument if such a batch cannot be drawn from `images` images or divided equally among the ranks.
std::size_t ShareOfBatch(std::size_t batch_size, std::size_t images, std::size_t ranks);

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_BATCH_H_
