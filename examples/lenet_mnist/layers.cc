// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/layers.h"

#include <algorithm>
#include <cmath>

namespace lenet {
namespace {

using ImageMap = Eigen::Map<Matrix>;
using ConstImageMap = Eigen::Map<const Matrix>;

// Draws weights from a uniform distribution over +-sqrt(6 / fan_in). This limit keeps the variance of activations
// constant across ReLU layers (He et al. 2015, eq. 10).
Parameter RandomWeight(const std::string& name, Index rows, Index fan_in, RandomNumbers& random) {
  Parameter weight{name, Matrix(rows, fan_in), Matrix::Zero(rows, fan_in)};
  const float limit = std::sqrt(6.0f / static_cast<float>(fan_in));
  for (Index i = 0; i < weight.value.size(); ++i) weight.value.data()[i] = random.Uniform(limit);
  return weight;
}

Parameter ZeroBias(const std::string& name, Index size) { return {name, Matrix::Zero(1, size), Matrix::Zero(1, size)}; }

}  // namespace

Linear::Linear(const std::string& name, Index inputs, Index outputs, RandomNumbers& random)
    : weight_(RandomWeight(name + ".weight", outputs, inputs, random)), bias_(ZeroBias(name + ".bias", outputs)) {}

const Matrix& Linear::Forward(const Matrix& input) {
  input_ = &input;
  output_.noalias() = input * weight_.value.transpose();
  output_.rowwise() += bias_.value.row(0);
  return output_;
}

void Linear::ComputeParameterGradients(const Matrix& output_gradient) {
  weight_.gradient.noalias() = output_gradient.transpose() * *input_;
  bias_.gradient = output_gradient.colwise().sum();
}

const Matrix& Linear::InputGradient(const Matrix& output_gradient) {
  input_gradient_.noalias() = output_gradient * weight_.value;
  return input_gradient_;
}

Conv2d::Conv2d(const std::string& name, const Options& options, RandomNumbers& random)
    : options_(options),
      weight_(RandomWeight(name + ".weight", options.out_channels,
                           options.in_channels * options.kernel * options.kernel, random)),
      bias_(ZeroBias(name + ".bias", options.out_channels)) {}

// Row (channel, ky, kx) of a patch matrix is the image's channel, shifted by (ky - padding, kx - padding) and cropped
// to out_side x out_side. Patch pixels outside the image belong to no run.
template <class Run>
void Conv2d::ForEachRun(const Run& run) const {
  const Index side = options_.side;
  Index patch_row = 0;
  for (Index channel = 0; channel < options_.in_channels; ++channel) {
    for (Index dy = -options_.padding; dy < options_.kernel - options_.padding; ++dy) {
      for (Index dx = -options_.padding; dx < options_.kernel - options_.padding; ++dx, ++patch_row) {
        const Index x_begin = std::max<Index>(0, -dx);
        const Index x_end = std::min(out_side(), side - dx);
        for (Index y = std::max<Index>(0, -dy); y < std::min(out_side(), side - dy); ++y) {
          run((channel * side + y + dy) * side + x_begin + dx, patch_row * out_pixels() + y * out_side() + x_begin,
              x_end - x_begin);
        }
      }
    }
  }
}

const Matrix& Conv2d::Forward(const Matrix& input) {
  patches_.resize(static_cast<std::size_t>(input.rows()));
  output_.resize(input.rows(), options_.out_channels * out_pixels());
  for (Index i = 0; i < input.rows(); ++i) {
    Matrix& patches = patches_[static_cast<std::size_t>(i)];
    patches.setZero(weight_.value.cols(), out_pixels());
    const float* image = input.row(i).data();
    ForEachRun([&](Index in_image, Index in_patches, Index count) {
      std::copy_n(image + in_image, count, patches.data() + in_patches);
    });
    ImageMap output(output_.row(i).data(), options_.out_channels, out_pixels());
    output.noalias() = weight_.value * patches;
    output.colwise() += bias_.value.row(0).transpose();
  }
  return output_;
}

void Conv2d::ComputeParameterGradients(const Matrix& output_gradient) {
  weight_.gradient.setZero();
  bias_.gradient.setZero();
  for (Index i = 0; i < output_gradient.rows(); ++i) {
    const ConstImageMap gradient(output_gradient.row(i).data(), options_.out_channels, out_pixels());
    weight_.gradient.noalias() += gradient * patches_[static_cast<std::size_t>(i)].transpose();
    bias_.gradient += gradient.rowwise().sum().transpose();
  }
}

const Matrix& Conv2d::InputGradient(const Matrix& output_gradient) {
  input_gradient_.setZero(output_gradient.rows(), options_.in_channels * options_.side * options_.side);
  for (Index i = 0; i < output_gradient.rows(); ++i) {
    const ConstImageMap gradient(output_gradient.row(i).data(), options_.out_channels, out_pixels());
    patch_gradient_.noalias() = weight_.value.transpose() * gradient;
    float* image = input_gradient_.row(i).data();
    ForEachRun([&](Index in_image, Index in_patches, Index count) {
      const float* from = patch_gradient_.data() + in_patches;
      for (Index k = 0; k < count; ++k) image[in_image + k] += from[k];
    });
  }
  return input_gradient_;
}

const Matrix& MaxPool2d::Forward(const Matrix& input) {
  const Index out_side = side_ / 2;
  output_.resize(input.rows(), channels_ * out_side * out_side);
  chosen_.resize(output_.rows(), output_.cols());
  input_gradient_.setZero(input.rows(), input.cols());
  for (Index i = 0; i < output_.rows(); ++i) {
    const float* image = input.row(i).data();
    for (Index out = 0; out < output_.cols(); ++out) {
      // The rows of all channels are contiguous, so no separate loop over channels is needed.
      const Index corner = out / out_side * 2 * side_ + out % out_side * 2;
      Index best = corner;
      for (const Index pixel : {corner + 1, corner + side_, corner + side_ + 1}) {
        if (image[pixel] > image[best]) best = pixel;
      }
      output_(i, out) = image[best];
      chosen_(i, out) = best;
    }
  }
  return output_;
}

const Matrix& MaxPool2d::InputGradient(const Matrix& output_gradient) {
  input_gradient_.setZero();
  for (Index i = 0; i < output_gradient.rows(); ++i) {
    for (Index out = 0; out < output_gradient.cols(); ++out) {
      input_gradient_(i, chosen_(i, out)) = output_gradient(i, out);
    }
  }
  return input_gradient_;
}

const Matrix& Relu::Forward(const Matrix& input) {
  output_ = input.cwiseMax(0.0f);
  return output_;
}

const Matrix& Relu::InputGradient(const Matrix& output_gradient) {
  input_gradient_ = (output_.array() > 0.0f).select(output_gradient, 0.0f);
  return input_gradient_;
}

}  // namespace lenet
