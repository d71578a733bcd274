// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/scalar_reference.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace ronda::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ScalarReferenceTest, KnownFp16Values) {
  EXPECT_EQ(DoubleFromFp16(0x3C00), 1.0);
  EXPECT_EQ(DoubleFromFp16(0xC000), -2.0);
  EXPECT_EQ(DoubleFromFp16(0x7BFF), 65504.0);
  EXPECT_EQ(DoubleFromFp16(0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(DoubleFromFp16(0x0400), std::ldexp(1.0, -14));
  EXPECT_EQ(DoubleFromFp16(0xFC00), -kInfinity);
  EXPECT_TRUE(std::isnan(DoubleFromFp16(0x7C01)));
}

TEST(ScalarReferenceTest, Fp16RoundsToNearestEven) {
  EXPECT_EQ(Fp16FromDouble(1.0 + std::ldexp(1.0, -11)), 0x3C00);
  EXPECT_EQ(Fp16FromDouble(1.0 + std::ldexp(3.0, -11)), 0x3C02);
  EXPECT_EQ(Fp16FromDouble(1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -50)), 0x3C01);
  EXPECT_EQ(Fp16FromDouble(65519.0), 0x7BFF);
  EXPECT_EQ(Fp16FromDouble(-65520.0), 0xFC00);
  EXPECT_EQ(Fp16FromDouble(std::ldexp(1.0, -25)), 0x0000);
  EXPECT_EQ(Fp16FromDouble(std::ldexp(3.0, -25)), 0x0002);
  EXPECT_EQ(Fp16FromDouble(-std::ldexp(1.0, -400)), 0x8000);
  EXPECT_EQ(Fp16FromDouble(std::nan("")), 0x7E00);
}

TEST(ScalarReferenceTest, KnownBf16Values) {
  EXPECT_EQ(DoubleFromBf16(0x3F80), 1.0);
  EXPECT_EQ(DoubleFromBf16(0x0001), std::ldexp(1.0, -133));
  EXPECT_EQ(Bf16FromDouble(1.0 + std::ldexp(1.0, -8)), 0x3F80);
  EXPECT_EQ(Bf16FromDouble(1.0 + std::ldexp(3.0, -8)), 0x3F82);
  EXPECT_EQ(Bf16FromDouble(3.4e38), 0x7F80);
  EXPECT_EQ(Bf16FromDouble(-kInfinity), 0xFF80);
}

TEST(ScalarReferenceTest, KnownE4M3Values) {
  EXPECT_EQ(DoubleFromE4M3(0x38), 1.0);
  EXPECT_EQ(DoubleFromE4M3(0x7E), 448.0);
  EXPECT_EQ(DoubleFromE4M3(0xFE), -448.0);
  EXPECT_EQ(DoubleFromE4M3(0x08), std::ldexp(1.0, -6));
  EXPECT_EQ(DoubleFromE4M3(0x01), std::ldexp(1.0, -9));
  EXPECT_TRUE(std::isnan(DoubleFromE4M3(0x7F)));
  EXPECT_TRUE(std::isnan(DoubleFromE4M3(0xFF)));
  EXPECT_EQ(E4M3FromDouble(1.0 + 1.0 / 16), 0x38);
  EXPECT_EQ(E4M3FromDouble(1.0 + 3.0 / 16), 0x3A);
  EXPECT_EQ(E4M3FromDouble(464.0), 0x7E);  // a tie between 448 and the first number out of range
  EXPECT_EQ(E4M3FromDouble(465.0), 0x7F);
  EXPECT_EQ(E4M3FromDouble(-kInfinity), 0x7F);
  EXPECT_EQ(E4M3FromDouble(-std::nan("")), 0x7F);
}

TEST(ScalarReferenceTest, KnownE5M2Values) {
  EXPECT_EQ(DoubleFromE5M2(0x3C), 1.0);
  EXPECT_EQ(DoubleFromE5M2(0x7B), 57344.0);
  EXPECT_EQ(DoubleFromE5M2(0x04), std::ldexp(1.0, -14));
  EXPECT_EQ(DoubleFromE5M2(0x81), -std::ldexp(1.0, -16));
  EXPECT_EQ(DoubleFromE5M2(0xFC), -kInfinity);
  EXPECT_TRUE(std::isnan(DoubleFromE5M2(0x7D)));
  EXPECT_EQ(E5M2FromDouble(1.0 + 1.0 / 8), 0x3C);
  EXPECT_EQ(E5M2FromDouble(1.0 + 3.0 / 8), 0x3E);
  EXPECT_EQ(E5M2FromDouble(61439.0), 0x7B);
  EXPECT_EQ(E5M2FromDouble(-61440.0), 0xFC);
  EXPECT_EQ(E5M2FromDouble(-std::nan("")), 0x7E);
}

TEST(ScalarReferenceTest, EveryFp8CodeSurvivesTheRoundTrip) {
  for (int code = 0; code <= 0xFF; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    if (!std::isnan(DoubleFromE4M3(bits))) {
      ASSERT_EQ(E4M3FromDouble(DoubleFromE4M3(bits)), bits);
    }
    if (!std::isnan(DoubleFromE5M2(bits))) {
      ASSERT_EQ(E5M2FromDouble(DoubleFromE5M2(bits)), bits);
    }
  }
}

TEST(ScalarReferenceTest, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    if (!std::isnan(DoubleFromFp16(bits))) {
      ASSERT_EQ(Fp16FromDouble(DoubleFromFp16(bits)), bits);
    }
    if (!std::isnan(DoubleFromBf16(bits))) {
      ASSERT_EQ(Bf16FromDouble(DoubleFromBf16(bits)), bits);
    }
  }
}

TEST(ScalarReferenceTest, RoundedToEachType) {
  EXPECT_EQ(RoundedTo(DType::kFloat32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(RoundedTo(DType::kFloat64, 0.1), 0.1);
  EXPECT_EQ(RoundedTo(DType::kFloat16, 0.1), 0.0999755859375);
  EXPECT_EQ(RoundedTo(DType::kBfloat16, 0.1), 0.10009765625);
  EXPECT_EQ(RoundedTo(DType::kInt8, -3.9), -3.0);
  EXPECT_EQ(RoundedTo(DType::kBool, 7.0), 1.0);
}

}  // namespace
}  // namespace ronda::testing
