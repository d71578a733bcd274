// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/mnist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/examples/lenet_mnist/idx_files.h"

namespace lenet {
namespace {

constexpr char kImages[] = "/train-images-idx3-ubyte";
constexpr char kLabels[] = "/train-labels-idx1-ubyte";

class MnistTest : public ::testing::Test {
 protected:
  MnistTest() {
    WriteImages(IdxBytes({2, 28, 28}, std::string(2 * kImagePixels, 'p')));
    WriteLabels(IdxBytes({2}, "\x03\x09"));
  }

  void WriteImages(const std::string& bytes) const { directory_.Write(kImages, bytes); }
  void WriteLabels(const std::string& bytes) const { directory_.Write(kLabels, bytes); }

  std::string Error() const {
    try {
      LoadMnist(directory_.path(), "train");
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  // Returns the message of an error in the file `name`: its path, then `problem`.
  std::string About(const std::string& name, const std::string& problem) const {
    return directory_.path() + name + ": " + problem;
  }

  TemporaryDirectory directory_;
};

TEST_F(MnistTest, ReadsImagesWithTheirLabels) {
  const MnistImages data = LoadMnist(directory_.path(), "train");
  EXPECT_EQ(data.size(), 2u);
  EXPECT_EQ(data.pixels, std::vector<std::uint8_t>(2 * kImagePixels, 'p'));
  EXPECT_EQ(data.labels, (std::vector<std::uint8_t>{3, 9}));
}

TEST_F(MnistTest, ReadsGzippedFilesByTheirUsualName) {
  const TemporaryDirectory other;
  other.Write("t10k-images-idx3-ubyte.gz", Gzip(IdxBytes({1, 28, 28}, std::string(kImagePixels, 'p'))));
  other.Write("t10k-labels-idx1-ubyte.gz", Gzip(IdxBytes({1}, "\x07")));
  EXPECT_EQ(LoadMnist(other.path(), "t10k").labels, std::vector<std::uint8_t>{7});
}

TEST_F(MnistTest, MissingFileIsNamed) {
  try {
    LoadMnist(directory_.path(), "t10k");
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.what(), About("/t10k-images-idx3-ubyte", "there is no such file, nor one that ends in .gz"));
  }
}

TEST_F(MnistTest, RefusesImagesOfAnotherSize) {
  WriteImages(IdxBytes({2, 28, 27}, std::string(std::size_t{2} * 28 * 27, 'p')));
  EXPECT_EQ(Error(), About(kImages, "does not hold images of 28x28 pixels"));
}

TEST_F(MnistTest, RefusesLabelsInPlaceOfImages) {
  WriteImages(IdxBytes({2}, "\x01\x02"));
  EXPECT_EQ(Error(), About(kImages, "does not hold images of 28x28 pixels"));
}

TEST_F(MnistTest, RefusesImagesInPlaceOfLabels) {
  WriteLabels(IdxBytes({1, 2}, "\x01\x02"));
  EXPECT_EQ(Error(), About(kLabels, "does not hold a list of labels"));
}

TEST_F(MnistTest, RefusesFilesWithoutImages) {
  WriteImages(IdxBytes({0, 28, 28}, ""));
  EXPECT_EQ(Error(), About(kImages, "holds no images"));
}

TEST_F(MnistTest, RefusesCountsThatDiffer) {
  WriteLabels(IdxBytes({3}, "\x01\x02\x03"));
  EXPECT_EQ(Error(), About(kLabels, "holds 3 labels for the 2 images of " + directory_.path() + kImages));
}

TEST_F(MnistTest, RefusesLabelsAboveNine) {
  WriteLabels(IdxBytes({2}, "\x09\x0a"));
  EXPECT_EQ(Error(), About(kLabels, "label 1 is 10, which is not a digit"));
}

TEST_F(MnistTest, DamageInAFileIsReportedWithItsName) {
  WriteLabels(IdxBytes({2}, "\x09"));
  EXPECT_EQ(Error(), About(kLabels, "truncated: its header announces 2 bytes, but 1 follow"));
}

TEST(DefaultDataDirectory, HoldsTenThousandDigitsOfAllKinds) {
  for (const auto& [prefix, count] : {std::pair("train", 8000u), std::pair("t10k", 2000u)}) {
    const MnistImages data = LoadMnist(DefaultDataDirectory(), prefix);
    EXPECT_EQ(data.size(), count);
    EXPECT_EQ(data.pixels.size(), count * kImagePixels);
    for (int digit = 0; digit < 10; ++digit) EXPECT_GT(std::count(data.labels.begin(), data.labels.end(), digit), 150);
  }
}

}  // namespace
}  // namespace lenet
