// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/layers.h"

#include <algorithm>
#include <cstddef>

#include "examples/cuda_mnist/launch.h"

namespace cuda_mnist {
namespace {

using Order = Operand::Order;

// Returns an array with `values` floats for each of `max_samples` samples.
DeviceArray<float> Samples(Device& device, int max_samples, int values) {
  return {device, static_cast<std::size_t>(max_samples) * static_cast<std::size_t>(values)};
}

DeviceArray<float> Ones(Device& device, int count) {
  return {device, std::vector<float>(static_cast<std::size_t>(count), 1.0f)};
}

// sums[j] = the sum over i of matrix[i][j]
void SumRows(Device& device, const float* ones, const float* matrix, int rows, int columns, float* sums) {
  device.Multiply({.rows = 1,
                   .columns = columns,
                   .inner = rows,
                   .left = {.data = ones},
                   .right = {.data = matrix},
                   .result = sums});
}

}  // namespace

Parameter::Parameter(Device& device, const lenet::Parameter& initial)
    : name(initial.name),
      rows(static_cast<int>(initial.value.rows())),
      columns(static_cast<int>(initial.value.cols())),
      value(device, std::vector<float>(initial.value.data(), initial.value.data() + initial.value.size())),
      gradient(device, value.size()) {}

Linear::Linear(Device& device, const InitialParameters& initial, int max_samples)
    : device_(device),
      weight_(device, initial.weight),
      bias_(device, initial.bias),
      output_(Samples(device, max_samples, outputs())),
      input_gradient_(Samples(device, max_samples, inputs())),
      ones_(Ones(device, max_samples)) {}

const float* Linear::Forward(const float* input, int samples) {
  input_ = input;
  samples_ = samples;
  device_.Multiply({.rows = samples,
                    .columns = outputs(),
                    .inner = inputs(),
                    .left = {.data = input},
                    .right = {.data = weight_.value.data(), .order = Order::kTransposed},
                    .result = output_.data()});
  Launch(AddBias{output_.data(), bias_.value.data(), /*run=*/1, outputs(), samples * outputs()}, device_.stream());
  return output_.data();
}

void Linear::ComputeParameterGradients(const float* output_gradient) {
  device_.Multiply({.rows = outputs(),
                    .columns = inputs(),
                    .inner = samples_,
                    .left = {.data = output_gradient, .order = Order::kTransposed},
                    .right = {.data = input_},
                    .result = weight_.gradient.data()});
  SumRows(device_, ones_.data(), output_gradient, samples_, outputs(), bias_.gradient.data());
}

const float* Linear::InputGradient(const float* output_gradient) {
  device_.Multiply({.rows = samples_,
                    .columns = inputs(),
                    .inner = outputs(),
                    .left = {.data = output_gradient},
                    .right = {.data = weight_.value.data()},
                    .result = input_gradient_.data()});
  return input_gradient_.data();
}

Conv2d::Conv2d(Device& device, const InitialParameters& initial, const ConvShape& shape, int max_samples)
    : device_(device),
      shape_(shape),
      weight_(device, initial.weight),
      bias_(device, initial.bias),
      patches_(Samples(device, max_samples, shape.patch() * shape.out_pixels())),
      output_(Samples(device, max_samples, out_channels() * shape.out_pixels())),
      weight_gradients_(Samples(device, max_samples, out_channels() * shape.patch())),
      bias_gradients_(Samples(device, max_samples, out_channels())),
      patch_gradients_(Samples(device, max_samples, shape.patch() * shape.out_pixels())),
      input_gradient_(Samples(device, max_samples, shape.in_pixels())),
      ones_(Ones(device, std::max(max_samples, shape.out_pixels()))) {}

const float* Conv2d::Forward(const float* input, int samples) {
  samples_ = samples;
  const int matrix = shape_.patch() * shape_.out_pixels();
  Launch(ImageToPatches{input, patches_.data(), shape_, samples * matrix}, device_.stream());
  device_.Multiply({.rows = out_channels(),
                    .columns = shape_.out_pixels(),
                    .inner = shape_.patch(),
                    .left = {.data = weight_.value.data()},
                    .right = {.data = patches_.data(), .stride = matrix},
                    .result = output_.data(),
                    .products = samples});
  const int outputs = samples * out_channels() * shape_.out_pixels();
  Launch(AddBias{output_.data(), bias_.value.data(), shape_.out_pixels(), out_channels(), outputs}, device_.stream());
  return output_.data();
}

void Conv2d::ComputeParameterGradients(const float* output_gradient) {
  device_.Multiply(
      {.rows = out_channels(),
       .columns = shape_.patch(),
       .inner = shape_.out_pixels(),
       .left = {.data = output_gradient, .stride = out_channels() * shape_.out_pixels()},
       .right = {.data = patches_.data(), .order = Order::kTransposed, .stride = shape_.patch() * shape_.out_pixels()},
       .result = weight_gradients_.data(),
       .products = samples_});
  SumRows(device_, ones_.data(), weight_gradients_.data(), samples_, out_channels() * shape_.patch(),
          weight_.gradient.data());
  device_.Multiply({.rows = samples_ * out_channels(),
                    .columns = 1,
                    .inner = shape_.out_pixels(),
                    .left = {.data = output_gradient},
                    .right = {.data = ones_.data()},
                    .result = bias_gradients_.data()});
  SumRows(device_, ones_.data(), bias_gradients_.data(), samples_, out_channels(), bias_.gradient.data());
}

const float* Conv2d::InputGradient(const float* output_gradient) {
  device_.Multiply({.rows = shape_.patch(),
                    .columns = shape_.out_pixels(),
                    .inner = out_channels(),
                    .left = {.data = weight_.value.data(), .order = Order::kTransposed},
                    .right = {.data = output_gradient, .stride = out_channels() * shape_.out_pixels()},
                    .result = patch_gradients_.data(),
                    .products = samples_});
  Launch(PatchesToImage{patch_gradients_.data(), input_gradient_.data(), shape_, samples_ * shape_.in_pixels()},
         device_.stream());
  return input_gradient_.data();
}

MaxPool2d::MaxPool2d(Device& device, int channels, int side, int max_samples)
    : device_(device),
      side_(side),
      outputs_(channels * side * side / 4),
      output_(Samples(device, max_samples, outputs_)),
      chosen_(device, output_.size()),
      input_gradient_(Samples(device, max_samples, outputs_ * 4)) {}

const float* MaxPool2d::Forward(const float* input, int samples) {
  samples_ = samples;
  Launch(MaxPool{input, output_.data(), chosen_.data(), side_, outputs_, samples * outputs_}, device_.stream());
  return output_.data();
}

const float* MaxPool2d::InputGradient(const float* output_gradient) {
  Launch(MaxPoolGradient{output_gradient, chosen_.data(), input_gradient_.data(), side_, outputs_,
                         samples_ * outputs_ * 4},
         device_.stream());
  return input_gradient_.data();
}

ReluLayer::ReluLayer(Device& device, int size, int max_samples)
    : device_(device),
      size_(size),
      output_(Samples(device, max_samples, size)),
      input_gradient_(Samples(device, max_samples, size)) {}

const float* ReluLayer::Forward(const float* input, int samples) {
  samples_ = samples;
  Launch(Relu{input, output_.data(), samples * size_}, device_.stream());
  return output_.data();
}

const float* ReluLayer::InputGradient(const float* output_gradient) {
  Launch(ReluGradient{output_.data(), output_gradient, input_gradient_.data(), samples_ * size_}, device_.stream());
  return input_gradient_.data();
}

}  // namespace cuda_mnist
