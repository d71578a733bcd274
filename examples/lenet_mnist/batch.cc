#include "examples/lenet_mnist/batch.h"

#include <algorithm>

namespace lenet {

Batch GatherBatch(const MnistImages& data, const std::vector<std::size_t>& indices) {
  Batch batch;
  batch.images.resize(static_cast<Eigen::Index>(indices.size()), static_cast<Eigen::Index>(kImagePixels));
  float* row = batch.images.data();
  for (const std::size_t index : indices) {
    const std::uint8_t* image = data.pixels.data() + index * kImagePixels;
    row = std::transform(image, image + kImagePixels, row,
                         [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255; });
    batch.labels.push_back(data.labels[index]);
  }
  return batch;
}

}  // namespace lenet
