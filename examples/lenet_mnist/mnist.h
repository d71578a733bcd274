// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_MNIST_H_
#define RONDA_EXAMPLES_LENET_MNIST_MNIST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/lenet_mnist/idx_reader.h"

namespace lenet {

constexpr std::size_t kImageSide = 28;
constexpr std::size_t kImagePixels = kImageSide * kImageSide;
constexpr std::size_t kDigits = 10;

// Digits and their labels. `pixels` has kImagePixels bytes per image, row by row; 0 is background.
struct MnistImages {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  std::size_t size() const { return labels.size(); }
};

// Reads the training set or the test set from `directory`: `prefix` is "train" or "t10k". The files are
// PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte, each with or without ".gz".
//
// Throws DataError if a file is missing or damaged, or if the two files do not match.
MnistImages LoadMnist(const std::string& directory, const std::string& prefix);

// Returns the folder with the digits of this example: examples/lenet_mnist/data in the working directory (the
// repository, or the folder in which `bazel run` starts programs) or, if that does not exist, the folder that Bazel
// puts next to the program.
std::string DefaultDataDirectory();

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_MNIST_H_
