// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/idx_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/idx_files.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class IdxReaderTest : public ::testing::Test {
 protected:
  // Writes the bytes to a file and reads it. Returns the error message without the path at its beginning.
  std::string ErrorFor(const std::string& bytes) const {
    const std::string path = directory_.Write("damaged", bytes);
    try {
      ReadIdx(path);
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), StartsWith(path + ": "));
      return std::string(error.what()).substr(path.size() + 2);
    }
    return "no error";
  }

  TemporaryDirectory directory_;
};

TEST_F(IdxReaderTest, ReadsShapeAndBytes) {
  const IdxArray array = ReadIdx(directory_.Write("plain", IdxBytes({2, 3}, "abcdef")));
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_THAT(array.data, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
}

TEST_F(IdxReaderTest, ReadsGzippedFilesWhateverTheirName) {
  const IdxArray array = ReadIdx(directory_.Write("zipped", Gzip(IdxBytes({2}, "ab"))));
  EXPECT_THAT(array.shape, ElementsAre(2));
  EXPECT_THAT(array.data, ElementsAre('a', 'b'));
}

TEST_F(IdxReaderTest, ReadsFilesLargerThanOneChunk) {
  const std::string data(3'000'000, 'x');
  EXPECT_EQ(ReadIdx(directory_.Write("large", Gzip(IdxBytes({3000, 1000}, data)))).data.size(), data.size());
}

TEST_F(IdxReaderTest, ReadsArraysWithoutElements) {
  EXPECT_THAT(ReadIdx(directory_.Write("empty", IdxBytes({0, 28}, ""))).data, ElementsAre());
}

TEST_F(IdxReaderTest, MissingFileIsNamed) {
  const std::string path = directory_.path() + "/missing";
  try {
    ReadIdx(path);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), (path + ": cannot open it: No such file or directory").c_str());
  }
}

TEST_F(IdxReaderTest, DirectoryIsNoFile) {
  try {
    ReadIdx(directory_.path());
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith(directory_.path()), HasSubstr("Is a directory")));
  }
}

TEST_F(IdxReaderTest, RefusesFilesTooShortForAHeader) {
  EXPECT_EQ(ErrorFor(""), "truncated: 0 bytes hold no IDX header");
  EXPECT_EQ(ErrorFor(std::string("\0\0\x08", 3)), "truncated: 3 bytes hold no IDX header");
}

TEST_F(IdxReaderTest, RefusesWrongMagic) {
  EXPECT_EQ(ErrorFor("PNG and more"), "not an IDX file: it begins with 0x50 0x4e instead of 0x00 0x00");
}

TEST_F(IdxReaderTest, RefusesOtherElementTypes) {
  EXPECT_EQ(ErrorFor(std::string("\0\0\x0d\x01\0\0\0\0", 8)), "holds elements of type 0x0d instead of bytes (0x08)");
}

TEST_F(IdxReaderTest, RefusesHeadersWithoutDimensions) {
  EXPECT_EQ(ErrorFor(IdxBytes({}, "a")), "its header announces no dimensions");
}

TEST_F(IdxReaderTest, RefusesTruncatedHeaders) {
  EXPECT_EQ(ErrorFor(IdxBytes({1, 2, 3}, "").substr(0, 15)), "truncated within its header of 3 dimensions");
}

TEST_F(IdxReaderTest, RefusesTruncatedData) {
  EXPECT_EQ(ErrorFor(IdxBytes({2, 3}, "abcde")), "truncated: its header announces 2x3 bytes, but 5 follow");
}

TEST_F(IdxReaderTest, RefusesTrailingData) {
  EXPECT_EQ(ErrorFor(IdxBytes({2, 3}, "abcdefg")), "too long: its header announces 2x3 bytes, but 7 follow");
}

// The product of these dimensions is 2^64, which overflows a 64-bit integer to 0.
TEST_F(IdxReaderTest, DimensionsThatOverflowAreTruncation) {
  EXPECT_THAT(ErrorFor(IdxBytes({0x80000000u, 0x80000000u, 4}, "")), StartsWith("truncated: "));
}

TEST_F(IdxReaderTest, RefusesGzipStreamsThatEndTooEarly) {
  const std::string zipped = Gzip(IdxBytes({4000}, std::string(4000, 'x')));
  for (std::size_t length = 3; length < zipped.size(); ++length) {
    EXPECT_NE(ErrorFor(zipped.substr(0, length)), "no error") << length;
  }
}

TEST_F(IdxReaderTest, RefusesGzipStreamsWithWrongChecksum) {
  std::string zipped = Gzip(IdxBytes({4}, "abcd"));
  zipped[zipped.size() - 8] ^= 1;  // the last eight bytes are checksum and length
  EXPECT_THAT(ErrorFor(zipped), AllOf(HasSubstr("cannot read it"), HasSubstr("incorrect data check")));
}

TEST_F(IdxReaderTest, NoFlippedBitOfAFileCrashesTheReader) {
  const std::string good = IdxBytes({2, 3}, "abcdef");
  for (const std::string& bytes : {good, Gzip(good)}) {
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      ErrorFor(damaged);
    }
  }
}

}  // namespace
}  // namespace lenet
