// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/bytes_text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ronda {
namespace {

TEST(BytesTextTest, NumberHasFourDigitsAndAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1 KiB");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(65536), "64 KiB");
  EXPECT_EQ(BytesText(uint64_t{256} << 20), "256 MiB");
  EXPECT_EQ(BytesText(3'410'000'000), "3.176 GiB");
  EXPECT_EQ(BytesText(uint64_t{1024} << 40), "1024 TiB") << "the last unit";
}

}  // namespace
}  // namespace ronda
