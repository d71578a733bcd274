// SPDX-License-Identifier: Apache-2.0

#include "tests/examples/lenet_mnist/few_digits.h"

#include "examples/lenet_mnist/mnist.h"

namespace lenet {

FewDigits::FewDigits(std::uint32_t train_count, std::uint32_t test_count) {
  Write("train", train_count);
  Write("t10k", test_count);
}

void FewDigits::Write(const std::string& prefix, std::uint32_t count) const {
  const MnistImages all = LoadMnist(DefaultDataDirectory(), prefix);
  const std::string pixels(reinterpret_cast<const char*>(all.pixels.data()), count * kImagePixels);
  directory_.Write(prefix + "-images-idx3-ubyte", IdxBytes({count, kImageSide, kImageSide}, pixels));
  const std::string labels(reinterpret_cast<const char*>(all.labels.data()), count);
  directory_.Write(prefix + "-labels-idx1-ubyte", IdxBytes({count}, labels));
}

}  // namespace lenet
