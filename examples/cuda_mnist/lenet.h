// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_LENET_H_
#define RONDA_EXAMPLES_CUDA_MNIST_LENET_H_

#include <functional>
#include <memory>
#include <vector>

#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/layers.h"
#include "examples/lenet_mnist/lenet.h"

namespace cuda_mnist {

// lenet::LeNet on the device: the same layers, and the same results except for rounding.
//
// Thread-compatible. The device must outlive the model.
class LeNet {
 public:
  // Called by Backward() once the work that computes a parameter's gradient has been enqueued on the device's stream.
  // `parameter` is the index in parameters().
  using GradientReady = std::function<void(std::size_t parameter)>;

  // Copies the parameters of `initial`, which is not used afterwards.
  LeNet(Device& device, lenet::LeNet& initial, int max_samples);

  // Returns the logits of the images, 10 per image. The images must not change until Backward() is done; the result is
  // valid until the next call. REQUIRES: 0 < samples <= max_samples.
  const float* Forward(const float* images, int samples);

  // Computes the gradients of all parameters from the gradient of the logits, last layer first.
  void Backward(const float* logits_gradient, const GradientReady& ready);

  // Returns the parameters, which the model owns, from first to last layer.
  const std::vector<Parameter*>& parameters() { return parameters_; }

 private:
  void Add(std::unique_ptr<Layer> layer);

  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Parameter*> parameters_;
};

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_LENET_H_
