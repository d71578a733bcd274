// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/stream_copy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace ronda::kernels {
namespace {

// Copies between addresses with many alignments, and many lengths up to several cache lines. Expects that the bytes
// arrive and no others change.
TEST(StreamCopyTest, CopiesAnyLengthBetweenAnyAlignments) {
  constexpr size_t kRoom = 64 + 400;
  std::string source(kRoom, '\0');
  for (size_t i = 0; i < kRoom; ++i) source[i] = static_cast<char>(i * 37 + 11);
  for (size_t from = 0; from < 64; from += 7) {
    for (size_t to = 0; to < 64; ++to) {
      for (size_t bytes = 0; bytes <= 400; bytes += bytes < 140 ? 1 : 65) {
        std::string copy(kRoom, '?');
        std::string expected = copy;
        expected.replace(to, bytes, source, from, bytes);
        StreamCopy(source.data() + from, copy.data() + to, bytes);
        ASSERT_EQ(copy, expected) << bytes << " bytes from +" << from << " to +" << to;
      }
    }
  }
}

}  // namespace
}  // namespace ronda::kernels
