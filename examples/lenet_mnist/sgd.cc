// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/sgd.h"

#include <utility>

namespace lenet {

Sgd::Sgd(std::vector<Parameter*> parameters, double momentum)
    : parameters_(std::move(parameters)), momentum_(momentum) {
  for (const Parameter* parameter : parameters_) {
    velocities_.push_back(Matrix::Zero(parameter->value.rows(), parameter->value.cols()));
  }
}

void Sgd::step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    velocities_[i] = static_cast<float>(momentum_) * velocities_[i] + parameters_[i]->gradient;
    parameters_[i]->value -= static_cast<float>(learning_rate_) * velocities_[i];
  }
}

std::vector<ronda::Tensor> Sgd::state() {
  std::vector<ronda::Tensor> state = {ronda::tensor("sgd.learning_rate", &learning_rate_)};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Matrix& velocity = velocities_[i];
    state.push_back(
        ronda::tensor("sgd.velocity." + parameters_[i]->name, velocity.data(), {velocity.rows(), velocity.cols()}));
  }
  return state;
}

}  // namespace lenet
