// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_SGD_H_
#define RONDA_EXAMPLES_CUDA_MNIST_SGD_H_

#include <vector>

#include "client/ronda.hpp"
#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/layers.h"

namespace cuda_mnist {

// Describes a device matrix to Ronda as a tensor that is computed by work on the device's stream.
ronda::Tensor View(const Device& device, const std::string& name, float* data, const Parameter& like);

// Like lenet::Sgd, on the device. The stream waits for the reduced gradients before it runs the work of step().
//
// Thread-compatible.
class Sgd {
 public:
  // `device` and `parameters` must outlive the optimizer.
  Sgd(Device& device, std::vector<Parameter*> parameters, double momentum);

  void set_learning_rate(double learning_rate) { learning_rate_ = learning_rate; }

  // Updates the parameter values from their gradients.
  void step();

  // The optimizer's state between steps: on the device, except for the learning rate.
  std::vector<ronda::Tensor> state();

 private:
  Device& device_;
  const std::vector<Parameter*> parameters_;
  const double momentum_;
  double learning_rate_ = 0;
  std::vector<DeviceArray<float>> velocities_;  // one per parameter
};

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_SGD_H_
