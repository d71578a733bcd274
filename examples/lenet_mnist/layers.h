// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_LAYERS_H_
#define RONDA_EXAMPLES_LENET_MNIST_LAYERS_H_

#include <eigen3/Eigen/Core>

#include <string>
#include <vector>

#include "examples/lenet_mnist/random.h"

namespace lenet {

// Activations have one row per sample. An image is stored in its row channel by channel, and each channel row by row.
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Index = Eigen::Index;

// A trainable parameter: a value, and the gradient of the loss with respect to it, which has the same shape.
struct Parameter {
  std::string name;
  Matrix value;
  Matrix gradient;
};

// One layer of a network. Computes a function of a batch, and the derivatives of the loss with respect to the layer's
// parameters and input.
//
// The backward pass consists of ComputeParameterGradients() and InputGradient(), so that the parameter gradients can
// already be sent to the other ranks while the input gradient, for which the earlier layers wait, is still being
// computed.
//
// Lifetime: the results of Forward() and InputGradient() belong to the layer and are valid until the next call.
// Thread-compatible.
class Layer {
 public:
  virtual ~Layer() = default;

  // Returns the outputs for `input`, which must not change until the backward pass is done.
  virtual const Matrix& Forward(const Matrix& input) = 0;

  // Sets the gradients of parameters(), given the gradient of the loss with respect to the result of the last
  // Forward().
  virtual void ComputeParameterGradients(const Matrix& output_gradient) { static_cast<void>(output_gradient); }

  // Returns the gradient of the loss with respect to the input of the last Forward().
  virtual const Matrix& InputGradient(const Matrix& output_gradient) = 0;

  virtual std::vector<Parameter*> parameters() { return {}; }
};

// output = input * weight^T + bias
class Linear : public Layer {
 public:
  // The parameters are named NAME.weight and NAME.bias.
  Linear(const std::string& name, Index inputs, Index outputs, RandomNumbers& random);

  const Matrix& Forward(const Matrix& input) override;
  void ComputeParameterGradients(const Matrix& output_gradient) override;
  const Matrix& InputGradient(const Matrix& output_gradient) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Parameter weight_;  // outputs x inputs
  Parameter bias_;    // 1 x outputs
  const Matrix* input_ = nullptr;
  Matrix output_;
  Matrix input_gradient_;
};

// Convolution with stride 1 (cross-correlation, as usual in neural networks), computed as a matrix product: an image is
// unrolled into a matrix whose columns are the patches under the kernel ("im2col").
class Conv2d : public Layer {
 public:
  struct Options {
    Index in_channels = 1;
    Index out_channels = 1;
    Index side = 1;     // images are side x side
    Index kernel = 1;   // the kernel is kernel x kernel
    Index padding = 0;  // zeros around the image
  };

  // The parameters are named NAME.weight and NAME.bias.
  Conv2d(const std::string& name, const Options& options, RandomNumbers& random);

  const Matrix& Forward(const Matrix& input) override;
  void ComputeParameterGradients(const Matrix& output_gradient) override;
  const Matrix& InputGradient(const Matrix& output_gradient) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Index out_side() const { return options_.side + 2 * options_.padding - options_.kernel + 1; }
  Index out_pixels() const { return out_side() * out_side(); }

  // Calls run(image_row, column_row, count) for each contiguous run of pixels that a patch matrix and an image share.
  template <class Run>
  void ForEachRun(const Run& run) const;

  const Options options_;
  Parameter weight_;             // out_channels x (in_channels * kernel * kernel)
  Parameter bias_;               // 1 x out_channels
  std::vector<Matrix> patches_;  // of each image: (in_channels * kernel * kernel) x out_pixels
  Matrix output_;
  Matrix patch_gradient_;
  Matrix input_gradient_;
};

// Keeps the largest value of each 2x2 block, or the first of them if several are equal.
class MaxPool2d : public Layer {
 public:
  // Images are side x side; `side` is even.
  MaxPool2d(Index channels, Index side) : channels_(channels), side_(side) {}

  const Matrix& Forward(const Matrix& input) override;
  const Matrix& InputGradient(const Matrix& output_gradient) override;

 private:
  const Index channels_;
  const Index side_;
  // For each output, the input column from which it comes.
  Eigen::Matrix<Index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> chosen_;
  Matrix output_;
  Matrix input_gradient_;
};

// output = max(input, 0)
class Relu : public Layer {
 public:
  const Matrix& Forward(const Matrix& input) override;
  const Matrix& InputGradient(const Matrix& output_gradient) override;

 private:
  Matrix output_;
  Matrix input_gradient_;
};

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_LAYERS_H_
