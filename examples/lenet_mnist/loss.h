// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_LOSS_H_
#define RONDA_EXAMPLES_LENET_MNIST_LOSS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/lenet_mnist/layers.h"

namespace lenet {

// Returns the mean of -log(softmax(logits)[label]) over the batch. Writes the gradient of that mean with respect to
// `logits` to `gradient`.
//
// REQUIRES: one label per row of `logits`, each below the number of columns.
double SoftmaxCrossEntropy(const Matrix& logits, const std::vector<std::uint8_t>& labels, Matrix* gradient);

// Returns the number of rows whose largest element (the first, if several are equal) is in the column of their label.
std::size_t CountCorrect(const Matrix& logits, const std::vector<std::uint8_t>& labels);

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_LOSS_H_
