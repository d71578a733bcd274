// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_SGD_H_
#define RONDA_EXAMPLES_LENET_MNIST_SGD_H_

#include <vector>

#include "client/ronda.hpp"
#include "examples/lenet_mnist/layers.h"

namespace lenet {

// Stochastic gradient descent with momentum: velocity = momentum * velocity + gradient;
// value -= learning_rate * velocity.
//
// This class does not know about ranks. ronda::DistributedOptimizer requires an optimizer to have step(), and
// ronda::broadcast_optimizer_state() requires state().
//
// Thread-compatible.
class Sgd {
 public:
  // `parameters` must outlive the optimizer.
  Sgd(std::vector<Parameter*> parameters, double momentum);

  void set_learning_rate(double learning_rate) { learning_rate_ = learning_rate; }

  // Updates the parameter values from their gradients.
  void step();

  // The optimizer's state between steps.
  std::vector<ronda::Tensor> state();

 private:
  const std::vector<Parameter*> parameters_;
  const double momentum_;
  double learning_rate_ = 0;
  std::vector<Matrix> velocities_;  // one per parameter
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_SGD_H_
