#include "runtime/collectives/messages/message_reduce.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace ronda {
namespace {

TEST(PageScratchTest, BeginsAtAPage) {
  PageScratch scratch;
  EXPECT_EQ(scratch.data(), nullptr);
  for (size_t bytes : {size_t{1}, size_t{4095}, size_t{4097}, size_t{1} << 20, (size_t{1} << 20) + 1}) {
    scratch.Grow(bytes);
    ASSERT_NE(scratch.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.data()) % PageScratch::kPageBytes, 0u) << bytes;
    std::memset(scratch.data(), 1, bytes);  // AddressSanitizer would object if there were less
  }
}

TEST(PageScratchTest, KeepsWhatItHasForShorterUses) {
  PageScratch scratch;
  scratch.Grow(10000);
  char* const before = scratch.data();
  std::memset(before, 7, 10000);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{10000}}) {
    scratch.Grow(bytes);
    EXPECT_EQ(scratch.data(), before);
  }
  EXPECT_EQ(before[9999], 7);
}

}  // namespace
}  // namespace ronda
