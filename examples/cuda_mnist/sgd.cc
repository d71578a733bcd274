// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/sgd.h"

#include <cstddef>
#include <utility>

#include "examples/cuda_mnist/launch.h"

namespace cuda_mnist {

ronda::Tensor View(const Device& device, const std::string& name, float* data, const Parameter& like) {
  return ronda::cuda_tensor(name, data, {like.rows, like.columns}, device.stream());
}

Sgd::Sgd(Device& device, std::vector<Parameter*> parameters, double momentum)
    : device_(device), parameters_(std::move(parameters)), momentum_(momentum) {
  for (const Parameter* parameter : parameters_) velocities_.emplace_back(device, parameter->value.size());
}

void Sgd::step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Launch(SgdUpdate{parameters_[i]->value.data(), velocities_[i].data(), parameters_[i]->gradient.data(),
                     static_cast<float>(momentum_), static_cast<float>(learning_rate_),
                     static_cast<int>(velocities_[i].size())},
           device_.stream());
  }
}

std::vector<ronda::Tensor> Sgd::state() {
  std::vector<ronda::Tensor> state = {ronda::tensor("sgd.learning_rate", &learning_rate_)};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    state.push_back(View(device_, "sgd.velocity." + parameters_[i]->name, velocities_[i].data(), *parameters_[i]));
  }
  return state;
}

}  // namespace cuda_mnist
