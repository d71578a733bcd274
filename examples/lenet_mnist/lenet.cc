// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/lenet.h"

namespace lenet {

LeNet::LeNet(std::uint64_t seed) {
  constexpr std::uint64_t kWeightsStream = ~std::uint64_t{0};  // epochs use the small numbers
  RandomNumbers random(seed, kWeightsStream);
  const Conv2d::Options conv1{.in_channels = 1, .out_channels = 6, .side = 28, .kernel = 5, .padding = 2};
  const Conv2d::Options conv2{.in_channels = 6, .out_channels = 16, .side = 14, .kernel = 5, .padding = 0};
  layers_.push_back(std::make_unique<Conv2d>("conv1", conv1, random));
  layers_.push_back(std::make_unique<Relu>());
  layers_.push_back(std::make_unique<MaxPool2d>(6, 28));
  layers_.push_back(std::make_unique<Conv2d>("conv2", conv2, random));
  layers_.push_back(std::make_unique<Relu>());
  layers_.push_back(std::make_unique<MaxPool2d>(16, 10));
  layers_.push_back(std::make_unique<Linear>("fc1", 16 * 5 * 5, 120, random));
  layers_.push_back(std::make_unique<Relu>());
  layers_.push_back(std::make_unique<Linear>("fc2", 120, 84, random));
  layers_.push_back(std::make_unique<Relu>());
  layers_.push_back(std::make_unique<Linear>("fc3", 84, 10, random));
}

const Matrix& LeNet::Forward(const Matrix& images) {
  const Matrix* activations = &images;
  for (const auto& layer : layers_) activations = &layer->Forward(*activations);
  return *activations;
}

void LeNet::Backward(const Matrix& logits_gradient, const GradientReady& ready) {
  const Matrix* gradient = &logits_gradient;
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    (*layer)->ComputeParameterGradients(*gradient);
    for (const Parameter* parameter : (*layer)->parameters()) ready(*parameter);
    const bool is_first_layer = layer + 1 == layers_.rend();  // no layer needs the gradient of the images
    if (!is_first_layer) gradient = &(*layer)->InputGradient(*gradient);
  }
}

std::vector<Parameter*> LeNet::parameters() {
  std::vector<Parameter*> all;
  for (const auto& layer : layers_) {
    for (Parameter* parameter : layer->parameters()) all.push_back(parameter);
  }
  return all;
}

}  // namespace lenet
