// SPDX-License-Identifier: Apache-2.0

// Defines what each GPU thread computes. Each operation is a struct. The threads call it with the numbers from 0 to
// count - 1, in any order and concurrently. The number selects the element of the result that the call computes.
// Launch() (launch.h) runs the structs on a stream.
//
// Arrays are in device memory. Images are stored one after the other, each channel by channel, and each channel row by
// row.
#ifndef RONDA_EXAMPLES_CUDA_MNIST_ELEMENTS_H_
#define RONDA_EXAMPLES_CUDA_MNIST_ELEMENTS_H_

#include <cmath>
#include <cstdint>

// The functions in this header also compile for the host, where tests run them.
#ifdef __CUDACC__
#define CUDA_MNIST_HOST_DEVICE __host__ __device__
#else
#define CUDA_MNIST_HOST_DEVICE
#endif

namespace cuda_mnist {

// Copies the images whose indices are in `order` out of the data set. In the result, 0 is background and 1 is ink. Each
// call copies one pixel.
struct GatherImages {
  const std::uint8_t* pixels;
  const int* order;
  float* images;
  int image_pixels;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const {
    const std::int64_t image = order[i / image_pixels];
    images[i] = static_cast<float>(pixels[image * image_pixels + i % image_pixels]) / 255;
  }
};

// Adds to each value the bias of its channel; `run` consecutive values have the same channel.
struct AddBias {
  float* values;
  const float* bias;
  int run;
  int channels;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const { values[i] += bias[i / run % channels]; }
};

struct Relu {
  const float* input;
  float* output;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const { output[i] = input[i] > 0 ? input[i] : 0; }
};

struct ReluGradient {
  const float* output;
  const float* output_gradient;
  float* input_gradient;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const { input_gradient[i] = output[i] > 0 ? output_gradient[i] : 0; }
};

// Finds the largest value of each 2x2 block (the first one, if several are equal), and its position. The rows of all
// channels are contiguous, so no separate channel index is needed. Each call computes one output.
struct MaxPool {
  const float* input;
  float* output;
  int* chosen;  // for each output, the position of the chosen pixel in its image
  int side;     // of the input's images; an even number
  int outputs;  // the number of outputs per image
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const {
    const float* const image = input + static_cast<std::int64_t>(i / outputs) * outputs * 4;
    const int out_side = side / 2, out = i % outputs;
    const int corner = out / out_side * 2 * side + out % out_side * 2;
    int best = corner;
    for (const int pixel : {corner + 1, corner + side, corner + side + 1}) {
      if (image[pixel] > image[best]) best = pixel;
    }
    output[i] = image[best];
    chosen[i] = best;
  }
};

// Computes the gradient of MaxPool's input. Each call computes the gradient of one input value.
struct MaxPoolGradient {
  const float* output_gradient;
  const int* chosen;
  float* input_gradient;
  int side;
  int outputs;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const {
    const int inputs = outputs * 4, pixel = i % inputs;
    const int out = pixel / side / 2 * (side / 2) + pixel % side / 2;
    const int at = i / inputs * outputs + out;
    input_gradient[i] = chosen[at] == pixel ? output_gradient[at] : 0;
  }
};

// The sizes of a convolution with stride 1 over square images.
struct ConvShape {
  int in_channels;
  int side;  // images are side x side
  int kernel;
  int padding;

  CUDA_MNIST_HOST_DEVICE int out_side() const { return side + 2 * padding - kernel + 1; }
  CUDA_MNIST_HOST_DEVICE int out_pixels() const { return out_side() * out_side(); }
  CUDA_MNIST_HOST_DEVICE int patch() const { return in_channels * kernel * kernel; }
  CUDA_MNIST_HOST_DEVICE int in_pixels() const { return in_channels * side * side; }
};

// Unrolls each image into a patch() x out_pixels() matrix whose columns are the patches under the kernel. Each call
// copies one element of the matrix.
struct ImageToPatches {
  const float* images;
  float* patches;
  ConvShape shape;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const {
    const int pixel = i % shape.out_pixels(), row = i / shape.out_pixels() % shape.patch();
    const float* const image =
        images + static_cast<std::int64_t>(i / shape.out_pixels() / shape.patch()) * shape.in_pixels();
    const int channel = row / (shape.kernel * shape.kernel);
    const int y = pixel / shape.out_side() + row / shape.kernel % shape.kernel - shape.padding;
    const int x = pixel % shape.out_side() + row % shape.kernel - shape.padding;
    const bool is_inside = y >= 0 && y < shape.side && x >= 0 && x < shape.side;
    patches[i] = is_inside ? image[(channel * shape.side + y) * shape.side + x] : 0;
  }
};

// Computes the gradient of the images from the gradient of the patches: the reverse of ImageToPatches. Each pixel's
// gradient is the sum over the patches that contain it. Each call computes the gradient of one pixel.
struct PatchesToImage {
  const float* patches;
  float* images;
  ConvShape shape;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const {
    const int in_image = i % shape.in_pixels(), out_side = shape.out_side();
    const int x = in_image % shape.side, y = in_image / shape.side % shape.side;
    const int channel = in_image / (shape.side * shape.side);
    const float* const matrix =
        patches + static_cast<std::int64_t>(i / shape.in_pixels()) * shape.patch() * shape.out_pixels();
    float sum = 0;
    for (int ky = 0; ky < shape.kernel; ++ky) {
      const int out_y = y + shape.padding - ky;
      if (out_y < 0 || out_y >= out_side) continue;
      for (int kx = 0; kx < shape.kernel; ++kx) {
        const int out_x = x + shape.padding - kx;
        if (out_x < 0 || out_x >= out_side) continue;
        const int row = (channel * shape.kernel + ky) * shape.kernel + kx;
        sum += matrix[row * shape.out_pixels() + out_y * out_side + out_x];
      }
    }
    images[i] = sum;
  }
};

// Computes -log(softmax(logits)[label]) for each sample, and the gradient of its mean over `count` samples. Each call
// handles one sample.
struct SoftmaxCrossEntropy {
  const float* logits;
  const std::uint8_t* labels;
  const int* order;  // label i belongs to the sample at order[i]
  float* losses;
  float* gradient;
  int classes;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const {
    const float* const row = logits + i * classes;
    float* const out = gradient + i * classes;
    const int label = labels[order[i]];
    // Mathematically, subtracting the largest logit does not change the result; it keeps exp() from overflowing.
    float largest = row[0];
    for (int k = 1; k < classes; ++k) largest = row[k] > largest ? row[k] : largest;
    float sum = 0;
    for (int k = 0; k < classes; ++k) sum += out[k] = expf(row[k] - largest);
    for (int k = 0; k < classes; ++k) out[k] /= sum * static_cast<float>(count);
    out[label] -= 1.0f / static_cast<float>(count);
    losses[i] = largest + logf(sum) - row[label];
  }
};

// Stochastic gradient descent with momentum: velocity = momentum * velocity + gradient; value -= rate * velocity.
struct SgdUpdate {
  float* values;
  float* velocities;
  const float* gradients;
  float momentum;
  float rate;
  int count;

  CUDA_MNIST_HOST_DEVICE void operator()(int i) const {
    velocities[i] = momentum * velocities[i] + gradients[i];
    values[i] -= rate * velocities[i];
  }
};

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_ELEMENTS_H_
