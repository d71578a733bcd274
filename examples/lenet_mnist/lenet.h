// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_LENET_H_
#define RONDA_EXAMPLES_LENET_MNIST_LENET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "examples/lenet_mnist/layers.h"

namespace lenet {

// LeNet-5 (LeCun et al. 1998, section II.B) for 28x28 images, in the variant that is common today. It has ReLU instead
// of tanh, max pooling instead of trainable subsampling, and logits instead of RBF units. All maps of one layer are
// connected to all maps of the next layer:
//
//   convolution 5x5, 6 maps, padding 2 | pool 2x2 | convolution 5x5, 16 maps | pool 2x2 | fully connected 120, 84, 10
//
// The network has 61,706 parameters in 10 tensors.
//
// Thread-compatible.
class LeNet {
 public:
  using GradientReady = std::function<void(const Parameter&)>;

  // The same seed gives the same weights on every machine.
  explicit LeNet(std::uint64_t seed);

  // Returns the logits of `images`, one row of 10 per image. `images` must not change until Backward() is done; the
  // result is valid until the next call.
  const Matrix& Forward(const Matrix& images);

  // Computes the gradients of all parameters from the gradient of the logits, last layer first. Calls `ready` for each
  // gradient as soon as it is complete.
  void Backward(const Matrix& logits_gradient, const GradientReady& ready);

  // Returns the parameters, which the model owns, from first to last layer.
  std::vector<Parameter*> parameters();

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_LENET_H_
