// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/cpu/gradients.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels {
namespace {

using ::ronda::testing::ReadElement;
using ::ronda::testing::WriteElement;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64};

// Returns one dot product, summed in the order that kernels/cpu/gradients.h promises.
double ReferenceDot(const void* a, const void* b, DType dtype, size_t count) {
  std::vector<double> sums(16, 0.0);
  for (size_t i = 0; i < count; ++i) {
    const double product = ReadElement(a, dtype, i) * ReadElement(b, dtype, i);
    sums[i % 16] += product;
  }
  while (sums.size() > 1) {
    const size_t half = sums.size() / 2;
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    sums.resize(half);
  }
  return sums[0];
}

// Every test runs on every SIMD target.
class AdasumTest : public ::testing::TestWithParam<int64_t> {
 protected:
  // Returns the Adasum of two whole vectors.
  static std::vector<double> Adasum(const std::vector<double>& a, const std::vector<double>& b) {
    const AdasumWeights weights = WeightsOf(Dots(a.data(), b.data(), DType::kFloat64, a.size()));
    std::vector<double> result(a.size());
    Combine({.a = a.data(),
             .b = b.data(),
             .weights = weights,
             .dst = result.data(),
             .dtype = DType::kFloat64,
             .count = a.size()});
    return result;
  }

  Random random_{20240613};  // fixed, so that a failure repeats
  ForcedTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, AdasumTest, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

TEST_P(AdasumTest, DotsHaveTheBitsOfTheirDefinedOrder) {
  for (DType dtype : kDTypes) {
    for (size_t count : {0, 1, 7, 15, 16, 17, 100, 1024, 1025, 5000}) {
      Buffer a(dtype, count, random_() % 8);
      Buffer b(dtype, count, random_() % 8);
      FillRandom(random_, Numbers::kOrdinary, dtype, count, a.data());
      FillRandom(random_, Numbers::kOrdinary, dtype, count, b.data());
      const AdasumDots dots = Dots(a.data(), b.data(), dtype, count);
      ASSERT_EQ(dots.ab, ReferenceDot(a.data(), b.data(), dtype, count)) << Name(dtype) << " " << count;
      ASSERT_EQ(dots.aa, ReferenceDot(a.data(), a.data(), dtype, count)) << Name(dtype) << " " << count;
      ASSERT_EQ(dots.bb, ReferenceDot(b.data(), b.data(), dtype, count)) << Name(dtype) << " " << count;
    }
  }
}

TEST_P(AdasumTest, DotsOfLargeFloatsDoNotOverflow) {
  const std::vector<float> a(100, std::numeric_limits<float>::max());
  const AdasumDots dots = Dots(a.data(), a.data(), DType::kFloat32, a.size());
  const auto max = static_cast<double>(std::numeric_limits<float>::max());
  EXPECT_DOUBLE_EQ(dots.ab, 100 * max * max);
}

TEST_P(AdasumTest, CombinesInFp64AndRoundsOnce) {
  for (DType dtype : kDTypes) {
    for (size_t count : {0, 1, 3, 7, 13, 127, 4097}) {
      const size_t misalignment = random_() % 8;
      Buffer a(dtype, count, misalignment);
      Buffer b(dtype, count, 7 - misalignment);
      FillRandom(random_, Numbers::kAnyBits, dtype, count, a.data());
      FillRandom(random_, Numbers::kOrdinary, dtype, count, b.data());
      const AdasumWeights weights = {.a = 0.3, .b = -1.7};
      Buffer expected(dtype, count);
      for (size_t i = 0; i < count; ++i) {
        const double weighted_a = weights.a * ReadElement(a.data(), dtype, i);
        const double weighted_b = weights.b * ReadElement(b.data(), dtype, i);
        WriteElement(expected.data(), dtype, i, weighted_a + weighted_b);
      }
      Buffer dst(dtype, count, 3);
      AdasumCombineArgs args = {
          .a = a.data(), .b = b.data(), .weights = weights, .dst = dst.data(), .dtype = dtype, .count = count};
      Combine(args);
      ASSERT_EQ(Difference(dtype, count, expected.data(), dst.data()), "") << Name(dtype);
      ASSERT_TRUE(dst.GuardsIntact());
      Buffer over_a = a;
      args.a = args.dst = over_a.data();
      Combine(args);
      ASSERT_EQ(Difference(dtype, count, expected.data(), over_a.data()), "") << Name(dtype) << " over a";
      args.a = a.data();
      args.dst = b.data();
      Combine(args);
      ASSERT_EQ(Difference(dtype, count, expected.data(), b.data()), "") << Name(dtype) << " over b";
    }
  }
}

TEST_P(AdasumTest, OrthogonalGradientsAddUp) {
  EXPECT_EQ(Adasum({3, 0, 1, 0}, {0, 2, 0, 5}), (std::vector<double>{3, 2, 1, 5}));
}

TEST_P(AdasumTest, EqualGradientsAverage) {
  EXPECT_EQ(Adasum({3, -2, 1}, {3, -2, 1}), (std::vector<double>{3, -2, 1}));
}

TEST_P(AdasumTest, ParallelGradientsOfDifferentLength) {
  // a = (2, 0), b = (4, 0): (1 - 8/8) a + (1 - 8/32) b.
  EXPECT_EQ(Adasum({2, 0}, {4, 0}), (std::vector<double>{3, 0}));
}

TEST_P(AdasumTest, AZeroGradientChangesNothing) {
  EXPECT_EQ(Adasum({0, 0, 0}, {3, -2, 1}), (std::vector<double>{3, -2, 1}));
  EXPECT_EQ(Adasum({3, -2, 1}, {0, 0, 0}), (std::vector<double>{3, -2, 1}));
  EXPECT_EQ(Adasum({0, 0}, {0, 0}), (std::vector<double>{0, 0}));
}

TEST_P(AdasumTest, TheOrderOfTheTwoDoesNotMatter) {
  std::vector<double> a(1000);
  std::vector<double> b(1000);
  FillRandom(random_, Numbers::kOrdinary, DType::kFloat64, a.size(), a.data());
  FillRandom(random_, Numbers::kOrdinary, DType::kFloat64, b.size(), b.data());
  EXPECT_EQ(Adasum(a, b), Adasum(b, a));
}

TEST(AdasumWeightsTest, FollowTheFormula) {
  constexpr AdasumWeights kWeights = WeightsOf({.ab = 3, .aa = 6, .bb = 2});
  EXPECT_EQ(kWeights.a, 0.75);
  EXPECT_EQ(kWeights.b, 0.25);
  EXPECT_EQ(WeightsOf({.ab = 0, .aa = 0, .bb = 2}).a, 1.0);
  EXPECT_EQ(WeightsOf({.ab = 0, .aa = 2, .bb = 0}).b, 1.0);
}

// Every test runs on every SIMD target.
class NonFiniteTest : public ::testing::TestWithParam<int64_t> {
 protected:
  Random random_{20240612};  // fixed, so that a failure repeats
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
