// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/mnist.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace lenet {
namespace {

namespace fs = std::filesystem;

constexpr char kDataInRepository[] = "examples/lenet_mnist/data";

std::string FindFile(const std::string& directory, const std::string& name) {
  const fs::path plain = fs::path(directory) / name;
  const fs::path gzipped = fs::path(directory) / (name + ".gz");
  std::error_code ignored;  // a file without access is treated as missing
  if (fs::exists(gzipped, ignored)) return gzipped.string();
  if (fs::exists(plain, ignored)) return plain.string();
  throw DataError(plain.string() + ": there is no such file, nor one that ends in .gz");
}

void CheckImages(const std::string& path, const IdxArray& images) {
  if (images.shape.size() != 3 || images.shape[1] != kImageSide || images.shape[2] != kImageSide) {
    throw DataError(path + ": does not hold images of 28x28 pixels");
  }
  if (images.shape[0] == 0) throw DataError(path + ": holds no images");
}

void CheckLabels(const std::string& path, const IdxArray& labels) {
  if (labels.shape.size() != 1) throw DataError(path + ": does not hold a list of labels");
  const auto wrong = std::find_if(labels.data.begin(), labels.data.end(), [](auto label) { return label >= kDigits; });
  if (wrong == labels.data.end()) return;
  throw DataError(path + ": label " + std::to_string(wrong - labels.data.begin()) + " is " + std::to_string(*wrong) +
                  ", which is not a digit");
}

}  // namespace

MnistImages LoadMnist(const std::string& directory, const std::string& prefix) {
  const std::string images_path = FindFile(directory, prefix + "-images-idx3-ubyte");
  const std::string labels_path = FindFile(directory, prefix + "-labels-idx1-ubyte");
  IdxArray images = ReadIdx(images_path);
  CheckImages(images_path, images);
  IdxArray labels = ReadIdx(labels_path);
  CheckLabels(labels_path, labels);
  if (labels.data.size() != images.shape[0]) {
    throw DataError(labels_path + ": holds " + std::to_string(labels.data.size()) + " labels for the " +
                    std::to_string(images.shape[0]) + " images of " + images_path);
  }
  return {std::move(images.data), std::move(labels.data)};
}

std::string DefaultDataDirectory() {
  std::error_code ignored;
  if (fs::is_directory(kDataInRepository, ignored)) return kDataInRepository;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path beside_program = program.string() + ".runfiles/ronda/" + kDataInRepository;
  return fs::is_directory(beside_program, ignored) ? beside_program.string() : kDataInRepository;
}

}  // namespace lenet
