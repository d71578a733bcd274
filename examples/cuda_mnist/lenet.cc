// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/lenet.h"

#include <cstddef>
#include <utility>

namespace cuda_mnist {

LeNet::LeNet(Device& device, lenet::LeNet& initial, int max_samples) {
  const std::vector<lenet::Parameter*> from = initial.parameters();
  const auto parameters_of = [&](std::size_t layer) {
    return InitialParameters{.weight = *from[2 * layer], .bias = *from[2 * layer + 1]};
  };
  const ConvShape conv1{.in_channels = 1, .side = 28, .kernel = 5, .padding = 2};
  const ConvShape conv2{.in_channels = 6, .side = 14, .kernel = 5, .padding = 0};
  Add(std::make_unique<Conv2d>(device, parameters_of(0), conv1, max_samples));
  Add(std::make_unique<ReluLayer>(device, 6 * 28 * 28, max_samples));
  Add(std::make_unique<MaxPool2d>(device, 6, 28, max_samples));
  Add(std::make_unique<Conv2d>(device, parameters_of(1), conv2, max_samples));
  Add(std::make_unique<ReluLayer>(device, 16 * 10 * 10, max_samples));
  Add(std::make_unique<MaxPool2d>(device, 16, 10, max_samples));
  Add(std::make_unique<Linear>(device, parameters_of(2), max_samples));
  Add(std::make_unique<ReluLayer>(device, 120, max_samples));
  Add(std::make_unique<Linear>(device, parameters_of(3), max_samples));
  Add(std::make_unique<ReluLayer>(device, 84, max_samples));
  Add(std::make_unique<Linear>(device, parameters_of(4), max_samples));
}

void LeNet::Add(std::unique_ptr<Layer> layer) {
  for (Parameter* parameter : layer->parameters()) parameters_.push_back(parameter);
  layers_.push_back(std::move(layer));
}

const float* LeNet::Forward(const float* images, int samples) {
  const float* activations = images;
  for (const auto& layer : layers_) activations = layer->Forward(activations, samples);
  return activations;
}

void LeNet::Backward(const float* logits_gradient, const GradientReady& ready) {
  const float* gradient = logits_gradient;
  std::size_t first_ready = parameters_.size();
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    (*layer)->ComputeParameterGradients(gradient);
    const std::size_t count = (*layer)->parameters().size();
    first_ready -= count;
    for (std::size_t i = 0; i < count; ++i) ready(first_ready + i);
    const bool is_first_layer = layer + 1 == layers_.rend();  // no layer needs the gradient of the images
    if (!is_first_layer) gradient = (*layer)->InputGradient(gradient);
  }
}

}  // namespace cuda_mnist
