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
