// SPDX-License-Identifier: Apache-2.0

// Tests the kernels that work on gradients: overflow checks, weighted sums, and Adasum.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/gradients.h"
#include "tests/kernels/cuda/runner.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels::cuda {
namespace {

constexpr DType kWideDTypes[] = {DType::kFloat32, DType::kFloat64};

// Tensors of one type in shared memory.
struct Tensors {
  std::vector<SharedBytes> bytes;
  std::vector<Extent> extents;
};

class GradientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = WhyNotHere();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }

  Tensors RandomTensors(DType dtype, const std::vector<size_t>& counts, size_t misalignment = 0) {
    Tensors tensors;
    for (size_t count : counts) {
      tensors.bytes.emplace_back(count * SizeOf(dtype), misalignment);
      FillRandom(random_, Numbers::kOrdinary, dtype, count, tensors.bytes.back().data());
      tensors.extents.push_back({.data = tensors.bytes.back().data(), .count = count});
    }
    return tensors;
  }

  // Returns the three dot products of each pair of tensors from `a` and `b`.
  static std::vector<double> DotsOf(DType dtype, const Tensors& a, const Tensors& b) {
    const size_t pairs = a.extents.size();
    const SharedBytes dots(3 * pairs * sizeof(double));
    const SharedBytes scratch(3 * pairs * kDotsMaxParts * sizeof(double));
    EXPECT_EQ(RunCall(DotsCall{.a = a.extents.data(),
                               .b = b.extents.data(),
                               .pair_count = static_cast<int>(pairs),
                               .dtype = dtype,
                               .dots = dots.as<double>(),
                               .scratch = scratch.as<double>()}),
              0);
    EXPECT_TRUE(dots.GuardsIntact() && scratch.GuardsIntact());
    return std::vector<double>(dots.as<double>(), dots.as<double>() + 3 * pairs);
  }

  Random random_{20240607};  // fixed, so that a failure repeats
};

TEST_F(GradientTest, OneElementThatIsNotFiniteIsFoundWhereverItIs) {
  for (DType dtype : kFloatDTypes) {
    for (size_t misalignment : {size_t{0}, SizeOf(dtype), size_t{1}}) {
      const std::vector<size_t> counts = {1, 1, 7, 7, 300, 300, 5000, 5000, 0, 20000};
      const Tensors tensors = RandomTensors(dtype, counts, misalignment);
      const double bad[] = {INFINITY, -INFINITY, NAN};
      for (size_t i = 1; i < counts.size(); i += 2) {
        if (i == 9) continue;
        const size_t at = random_() % counts[i];
        testing::WriteElement(tensors.bytes[i].data(), dtype, at, bad[i % 3]);
      }
      const SharedBytes found(counts.size());
      ASSERT_EQ(RunCall(NonFiniteCall{.tensors = tensors.extents.data(),
                                      .tensor_count = static_cast<int>(counts.size()),
                                      .dtype = dtype,
                                      .found = found.data()}),
                0);
      EXPECT_TRUE(found.GuardsIntact());
      for (size_t i = 0; i < counts.size(); ++i) {
        EXPECT_EQ(found.data()[i] != 0, HasNonFinite(tensors.bytes[i].data(), dtype, counts[i]))
            << Name(dtype) << ", tensor " << i;
        EXPECT_EQ(found.data()[i], i % 2 == 1 && i != 9);
      }
    }
  }
}

TEST_F(GradientTest, LargestFiniteNumbersAreFinite) {
  const uint64_t infinities[] = {0x7C00, 0x7F80, 0x7F800000, 0x7FF0000000000000};
  for (size_t i = 0; i < std::size(kFloatDTypes); ++i) {
    const size_t size = SizeOf(kFloatDTypes[i]);
    const SharedBytes element(size);
    const uint64_t bits = (infinities[i] - 1) | uint64_t{1} << (8 * size - 1);
    std::memcpy(element.data(), &bits, size);
    const Extent extent = {.data = element.data(), .count = 1};
    const SharedBytes found(1);
    ASSERT_EQ(
        RunCall(NonFiniteCall{.tensors = &extent, .tensor_count = 1, .dtype = kFloatDTypes[i], .found = found.data()}),
        0);
    EXPECT_EQ(*found.data(), 0);
  }
  EXPECT_EQ(RunCall(NonFiniteCall{}), 0);
}

TEST_F(GradientTest, IntegerDtypeIsAnError) {
  const SharedBytes bytes(8);
  const Extent extent = {.data = bytes.data(), .count = 1};
  const NonFiniteCall find = {.tensors = &extent, .tensor_count = 1, .dtype = DType::kInt32, .found = bytes.data() + 4};
  EXPECT_NE(RunCall(find), 0);
  EXPECT_NE(RunCall(AddScaledCall{.a = bytes.data(), .b = bytes.data(), .dst = bytes.data(), .dtype = DType::kInt8}),
            0);
  EXPECT_NE(RunCall(DotsCall{.dtype = DType::kFloat16}), 0);
}

TEST_F(GradientTest, AddScaledRoundsOnce) {
  for (DType dtype : kFloatDTypes) {
    for (size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{257}, size_t{9000}}) {
      for (size_t misalignment : {size_t{0}, SizeOf(dtype)}) {
        const Tensors tensors = RandomTensors(dtype, {count, count}, misalignment);
        std::vector<double> expected;
        for (size_t i = 0; i < count; ++i) {
          expected.push_back(
              testing::RoundedTo(dtype, 0.3 * testing::ReadElement(tensors.bytes[0].data(), dtype, i) +
                                            -1.7 * testing::ReadElement(tensors.bytes[1].data(), dtype, i)));
        }
        ASSERT_EQ(RunCall(AddScaledCall{.a = tensors.bytes[0].data(),
                                        .b = tensors.bytes[1].data(),
                                        .dst = tensors.bytes[1].data(),
                                        .dtype = dtype,
                                        .count = count,
                                        .a_scale = 0.3,
                                        .b_scale = -1.7}),
                  0);
        EXPECT_TRUE(tensors.bytes[1].GuardsIntact());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(testing::ReadElement(tensors.bytes[1].data(), dtype, i), expected[i]) << Name(dtype) << " " << i;
        }
      }
    }
  }
}

TEST_F(GradientTest, DotsAreTheCpusButForTheOrder) {
  const std::vector<size_t> counts = {1, 5, 0, 255, 256, 257, 4096, 4097, 100000, (1 << 21) + 5};
  for (DType dtype : kWideDTypes) {
    const Tensors a = RandomTensors(dtype, counts);
    const Tensors b = RandomTensors(dtype, counts, SizeOf(dtype));
    const std::vector<double> dots = DotsOf(dtype, a, b);
    for (size_t i = 0; i < counts.size(); ++i) {
      const AdasumDots expected = Dots(a.bytes[i].data(), b.bytes[i].data(), dtype, counts[i]);
      const double tolerance = 1e-13 * (expected.aa + expected.bb);
      EXPECT_NEAR(dots[3 * i], expected.ab, tolerance) << counts[i];
      EXPECT_NEAR(dots[3 * i + 1], expected.aa, tolerance) << counts[i];
      EXPECT_NEAR(dots[3 * i + 2], expected.bb, tolerance) << counts[i];
    }
    EXPECT_EQ(dots, DotsOf(dtype, a, b)) << "the order is fixed";
  }
}

TEST_F(GradientTest, ManyPairsHaveTheirOwnDots) {
  std::vector<size_t> counts;
  for (size_t i = 0; i < 1000; ++i) counts.push_back(i % 37);
  const Tensors a = RandomTensors(DType::kFloat32, counts);
  const std::vector<double> dots = DotsOf(DType::kFloat32, a, a);
  for (size_t i = 0; i < counts.size(); ++i) {
    const AdasumDots expected = Dots(a.bytes[i].data(), a.bytes[i].data(), DType::kFloat32, counts[i]);
    EXPECT_NEAR(dots[3 * i], expected.aa, 1e-12) << i;
    EXPECT_EQ(dots[3 * i], dots[3 * i + 2]) << i;
  }
}

TEST_F(GradientTest, CombinationIsTheCpus) {
  const std::vector<size_t> counts = {1, 5, 0, 256, 257, 5000};
  for (DType dtype : kWideDTypes) {
    const Tensors a = RandomTensors(dtype, counts);
    const Tensors b = RandomTensors(dtype, counts, SizeOf(dtype));
    std::memset(a.bytes[1].data(), 0, a.bytes[1].size());  // a norm of zero
    const SharedBytes dots(3 * counts.size() * sizeof(double));
    const std::vector<double> values = DotsOf(dtype, a, b);
    std::memcpy(dots.data(), values.data(), dots.size());
    std::vector<SharedBytes> expected;
    for (size_t i = 0; i < counts.size(); ++i) {
      expected.emplace_back(a.bytes[i].size());
      Combine({.a = a.bytes[i].data(),
               .b = b.bytes[i].data(),
               .weights = WeightsOf({.ab = values[3 * i], .aa = values[3 * i + 1], .bb = values[3 * i + 2]}),
               .dst = expected[i].data(),
               .dtype = dtype,
               .count = counts[i]});
    }
    ASSERT_EQ(RunCall(CombineCall{.a = a.extents.data(),
                                  .b = b.extents.data(),
                                  .pair_count = static_cast<int>(counts.size()),
                                  .dtype = dtype,
                                  .dots = dots.as<double>()}),
              0);
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_TRUE(a.bytes[i].GuardsIntact());
      EXPECT_EQ(Difference(dtype, counts[i], expected[i].data(), a.bytes[i].data()), "") << counts[i];
    }
  }
}

}  // namespace
}  // namespace ronda::kernels::cuda
