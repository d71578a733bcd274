// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_LAYERS_H_
#define RONDA_EXAMPLES_CUDA_MNIST_LAYERS_H_

#include <string>
#include <vector>

#include "examples/cuda_mnist/device.h"
#include "examples/cuda_mnist/elements.h"
#include "examples/lenet_mnist/layers.h"

namespace cuda_mnist {

// A trainable parameter in device memory: a matrix, and the gradient of the loss with respect to it.
struct Parameter {
  // Copies the value of `initial`, and sets the gradient to zero.
  Parameter(Device& device, const lenet::Parameter& initial);

  std::string name;
  int rows;
  int columns;
  DeviceArray<float> value;
  DeviceArray<float> gradient;
};

// A layer's initial parameters, in host memory.
struct InitialParameters {
  const lenet::Parameter& weight;
  const lenet::Parameter& bias;
};

// One layer of a network, like lenet::Layer, but on the device. Its functions enqueue work on the device's stream,
// which runs it later. Results have `max_samples` rows, of which only the first `samples` are used. They hold the
// values only after the stream has run the work.
//
// Lifetime: results belong to the layer. The input of Forward() must not change until the backward pass is done.
// Thread-compatible.
class Layer {
 public:
  virtual ~Layer() = default;

  // REQUIRES: 0 < samples <= max_samples.
  virtual const float* Forward(const float* input, int samples) = 0;

  // The two functions of the backward pass use the samples of the last Forward().
  virtual void ComputeParameterGradients(const float* output_gradient) { static_cast<void>(output_gradient); }
  virtual const float* InputGradient(const float* output_gradient) = 0;

  virtual std::vector<Parameter*> parameters() { return {}; }
};

// output = input * weight^T + bias
class Linear : public Layer {
 public:
  Linear(Device& device, const InitialParameters& initial, int max_samples);

  const float* Forward(const float* input, int samples) override;
  void ComputeParameterGradients(const float* output_gradient) override;
  const float* InputGradient(const float* output_gradient) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  int inputs() const { return weight_.columns; }
  int outputs() const { return weight_.rows; }

  Device& device_;
  Parameter weight_;
  Parameter bias_;
  DeviceArray<float> output_;
  DeviceArray<float> input_gradient_;
  const DeviceArray<float> ones_;  // a product with these sums over the samples
  const float* input_ = nullptr;
  int samples_ = 0;
};

// Convolution with stride 1, computed as products of the weight with each image's patches.
class Conv2d : public Layer {
 public:
  Conv2d(Device& device, const InitialParameters& initial, const ConvShape& shape, int max_samples);

  const float* Forward(const float* input, int samples) override;
  void ComputeParameterGradients(const float* output_gradient) override;
  const float* InputGradient(const float* output_gradient) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  int out_channels() const { return weight_.rows; }

  Device& device_;
  const ConvShape shape_;
  Parameter weight_;
  Parameter bias_;
  DeviceArray<float> patches_;
  DeviceArray<float> output_;
  DeviceArray<float> weight_gradients_;  // of each image
  DeviceArray<float> bias_gradients_;    // of each image
  DeviceArray<float> patch_gradients_;
  DeviceArray<float> input_gradient_;
  const DeviceArray<float> ones_;  // for sums over pixels, and over samples
  int samples_ = 0;
};

// Keeps the largest value of each 2x2 block.
class MaxPool2d : public Layer {
 public:
  // Images are side x side; `side` is even.
  MaxPool2d(Device& device, int channels, int side, int max_samples);

  const float* Forward(const float* input, int samples) override;
  const float* InputGradient(const float* output_gradient) override;

 private:
  Device& device_;
  const int side_;
  const int outputs_;  // of an image
  DeviceArray<float> output_;
  DeviceArray<int> chosen_;
  DeviceArray<float> input_gradient_;
  int samples_ = 0;
};

// output = max(input, 0)
class ReluLayer : public Layer {
 public:
  // A sample has `size` values.
  ReluLayer(Device& device, int size, int max_samples);

  const float* Forward(const float* input, int samples) override;
  const float* InputGradient(const float* output_gradient) override;

 private:
  Device& device_;
  const int size_;
  DeviceArray<float> output_;
  DeviceArray<float> input_gradient_;
  int samples_ = 0;
};

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_LAYERS_H_
