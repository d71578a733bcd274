#include "kernels/cpu/gradients.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels {
namespace {

// Every test runs on every SIMD target.
class NonFiniteTest : public ::testing::TestWithParam<int64_t> {
 protected:
  Random random_{20240612};  // fixed: a failure repeats
  ForcedTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, NonFiniteTest, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

TEST_P(NonFiniteTest, EveryPatternOf16Bits) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
      const auto bits = static_cast<uint16_t>(pattern);
      const bool is_finite = std::isfinite(testing::ReadElement(&bits, dtype, 0));
      ASSERT_EQ(HasNonFinite(&bits, dtype, 1), !is_finite) << Name(dtype) << " " << pattern;
    }
  }
}

TEST_P(NonFiniteTest, TheLimitsOfTheWiderTypes) {
  for (uint32_t sign : {0u, 0x80000000u}) {
    for (uint32_t finite : {0u, 1u, 0x00800000u, 0x7F7FFFFFu}) {
      const uint32_t bits = finite | sign;
      EXPECT_FALSE(HasNonFinite(&bits, DType::kFloat32, 1)) << bits;
    }
    for (uint32_t special : {0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu}) {
      const uint32_t bits = special | sign;
      EXPECT_TRUE(HasNonFinite(&bits, DType::kFloat32, 1)) << bits;
    }
  }
  for (uint64_t sign : {uint64_t{0}, uint64_t{1} << 63}) {
    for (uint64_t finite : {uint64_t{0}, uint64_t{1}, 0x7FEFFFFFFFFFFFFFu}) {
      const uint64_t bits = finite | sign;
      EXPECT_FALSE(HasNonFinite(&bits, DType::kFloat64, 1)) << bits;
    }
    for (uint64_t special : {0x7FF0000000000000u, 0x7FF0000000000001u, 0x7FFFFFFFFFFFFFFFu}) {
      const uint64_t bits = special | sign;
      EXPECT_TRUE(HasNonFinite(&bits, DType::kFloat64, 1)) << bits;
    }
  }
}

TEST_P(NonFiniteTest, FindsTheOnlyOneAnywhere) {
  constexpr size_t kCount = 150;
  for (DType dtype : kFloatDTypes) {
    Buffer buffer(dtype, kCount, random_() % 8);
    FillRandom(random_, Numbers::kOrdinary, dtype, kCount, buffer.data());
    for (size_t count : {1, 17, 64, 150}) {
      ASSERT_FALSE(HasNonFinite(buffer.data(), dtype, count)) << Name(dtype);
      for (size_t i = 0; i < count; ++i) {
        const double before = testing::ReadElement(buffer.data(), dtype, i);
        testing::WriteElement(buffer.data(), dtype, i, i % 2 == 0 ? -INFINITY : std::nan(""));
        ASSERT_TRUE(HasNonFinite(buffer.data(), dtype, count)) << Name(dtype) << ", element " << i << " of " << count;
        ASSERT_FALSE(HasNonFinite(buffer.data(), dtype, i)) << Name(dtype) << " looked beyond the end";
        testing::WriteElement(buffer.data(), dtype, i, before);
      }
    }
  }
}

TEST_P(NonFiniteTest, IntegersAreFiniteAndSoIsNothing) {
  const std::vector<uint8_t> ones(64, 0xFF);
  for (DType dtype : kAllDTypes) {
    EXPECT_FALSE(HasNonFinite(ones.data(), dtype, 0)) << Name(dtype);
    if (IsFloatingPoint(dtype)) continue;
    EXPECT_FALSE(HasNonFinite(ones.data(), dtype, ones.size() / SizeOf(dtype))) << Name(dtype);
  }
}

}  // namespace
}  // namespace ronda::kernels
