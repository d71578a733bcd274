// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/loss.h"

#include <cmath>

namespace lenet {

double SoftmaxCrossEntropy(const Matrix& logits, const std::vector<std::uint8_t>& labels, Matrix* gradient) {
  // Subtracting the largest logit does not change the result in theory, and keeps exp() from overflowing.
  *gradient = (logits.colwise() - logits.rowwise().maxCoeff()).array().exp();
  const float samples = static_cast<float>(logits.rows());
  double loss = 0;
  for (Index i = 0; i < logits.rows(); ++i) {
    const Index label = labels[static_cast<std::size_t>(i)];
    const float sum = gradient->row(i).sum();
    loss -= logits(i, label) - logits.row(i).maxCoeff() - std::log(sum);
    gradient->row(i) /= sum * samples;
    (*gradient)(i, label) -= 1.0f / samples;
  }
  return loss / samples;
}

std::size_t CountCorrect(const Matrix& logits, const std::vector<std::uint8_t>& labels) {
  std::size_t correct = 0;
  for (Index i = 0; i < logits.rows(); ++i) {
    Index best = 0;
    logits.row(i).maxCoeff(&best);
    if (best == labels[static_cast<std::size_t>(i)]) ++correct;
  }
  return correct;
}

}  // namespace lenet
