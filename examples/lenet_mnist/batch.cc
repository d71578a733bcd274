// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/batch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace lenet {

Batch GatherBatch(const MnistImages& data, const std::vector<std::int64_t>& indices) {
  Batch batch;
  batch.images.resize(static_cast<Eigen::Index>(indices.size()), static_cast<Eigen::Index>(kImagePixels));
  float* row = batch.images.data();
  for (const std::int64_t sample : indices) {
    const auto index = static_cast<std::size_t>(sample);
    const std::uint8_t* image = data.pixels.data() + index * kImagePixels;
    row = std::transform(image, image + kImagePixels, row,
                         [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255; });
    batch.labels.push_back(data.labels[index]);
  }
  return batch;
}

std::size_t ShareOfBatch(std::size_t batch_size, std::size_t images, std::size_t ranks) {
  const std::string batch = "a batch of " + std::to_string(batch_size) + " images ";
  if (batch_size == 0 || batch_size > images) {
    throw std::invalid_argument(batch + "cannot be drawn from " + std::to_string(images));
  }
  if (batch_size % ranks != 0) {
    throw std::invalid_argument(batch + "cannot be shared equally by " + std::to_string(ranks) +
                                " ranks: choose a multiple of " + std::to_string(ranks));
  }
  return batch_size / ranks;
}

}  // namespace lenet
