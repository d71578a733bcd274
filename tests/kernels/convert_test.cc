// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/cpu/convert.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/reference_kernels.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels {
namespace {

// Every test runs on every SIMD target.
class ConvertTest : public ::testing::TestWithParam<int64_t> {
 protected:
  // Converts `src`. Returns how the result differs from the reference, or "" if they are equal.
  static std::string Check(const void* src, DType from, DType to, size_t count, const Scale& scale,
                           size_t misalignment = 0) {
    Buffer expected(to, count);
    Buffer actual(to, count, misalignment);
    ReferenceConvert(src, from, expected.data(), to, count, scale);
    Convert(src, from, actual.data(), to, count, scale);
    if (!actual.GuardsIntact()) return "wrote outside of the destination";
    return Difference(to, count, expected.data(), actual.data());
  }

  template <class T>
  static std::vector<T> Converted(DType from, DType to, const std::vector<T>& src, const Scale& scale) {
    std::vector<T> dst(src.size());
    Convert(src.data(), from, dst.data(), to, src.size(), scale);
    return dst;
  }

  Random random_{20240607};  // fixed, so that a failure repeats
  ForcedTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, ConvertTest, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

TEST_P(ConvertTest, EveryPatternOf16BitsConverts) {
  std::vector<uint16_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  for (DType from : {DType::kFloat16, DType::kBfloat16}) {
    for (DType to : kFloatDTypes) {
      for (const Scale& scale : {Scale{}, Scale{.multiplier = 3.0, .divisor = 7}}) {
        EXPECT_EQ(Check(patterns.data(), from, to, patterns.size(), scale), "") << Name(from) << " to " << Name(to);
      }
    }
  }
}

// Returns mantissas that test rounding at each bit position in `places`: zeros, ones, ties, and their neighbours.
std::vector<uint64_t> TellingMantissas(int mantissa_bits, const std::vector<int>& places, Random& random) {
  const uint64_t mask = (uint64_t{1} << mantissa_bits) - 1;
  std::vector<uint64_t> mantissas = {0, 1, mask, mask - 1};
  for (int place : places) {
    for (uint64_t upper : {uint64_t{0}, uint64_t{1}, uint64_t{2}, mask >> place, random(), random()}) {
      const uint64_t tie = (upper << place) + (uint64_t{1} << (place - 1));
      for (uint64_t near : {tie, tie - 1, tie + 1}) mantissas.push_back(near & mask);
    }
  }
  for (int i = 0; i < 16; ++i) mantissas.push_back(random() & mask);
  return mantissas;
}

TEST_P(ConvertTest, NarrowingFp32RoundsOnceToNearestEven) {
  std::vector<uint32_t> values;
  const std::vector<int> places = {13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (uint64_t mantissa : TellingMantissas(23, places, random_)) {
      const uint32_t magnitude = exponent << 23 | static_cast<uint32_t>(mantissa);
      values.push_back(magnitude);
      values.push_back(magnitude | 0x80000000u);
    }
  }
  for (DType to : {DType::kFloat16, DType::kBfloat16}) {
    EXPECT_EQ(Check(values.data(), DType::kFloat32, to, values.size(), {}), "") << Name(to);
  }
}

TEST_P(ConvertTest, NarrowingFp64RoundsOnceToNearestEven) {
  std::vector<uint64_t> values;
  const std::vector<int> places = {29, 30, 35, 40, 42, 43, 44, 45, 46, 48, 50, 51};
  for (uint64_t exponent = 0; exponent < 2048; ++exponent) {
    // Above the range of fp32, and far below its subnormal numbers, tests only every 64th exponent and 2047.
    if ((exponent < 1023 - 160 || exponent > 1023 + 130) && exponent % 64 != 0 && exponent != 2047) continue;
    for (uint64_t mantissa : TellingMantissas(52, places, random_)) {
      values.push_back(exponent << 52 | mantissa);
      values.push_back(exponent << 52 | mantissa | uint64_t{1} << 63);
    }
  }
  for (DType to : {DType::kFloat16, DType::kBfloat16, DType::kFloat32}) {
    EXPECT_EQ(Check(values.data(), DType::kFloat64, to, values.size(), {}), "") << Name(to);
  }
}

TEST_P(ConvertTest, AnyBitsBetweenAllFloatingPointTypes) {
  constexpr size_t kCount = 20'001;
  for (DType from : kFloatDTypes) {
    Buffer src(from, kCount, 1);
    FillRandom(random_, Numbers::kAnyBits, from, kCount, src.data());
    for (DType to : kFloatDTypes) {
      for (const Scale& scale : {Scale{}, Scale{.multiplier = 1e-3}, Scale{.divisor = 3}, Scale{.multiplier = -1e6}}) {
        EXPECT_EQ(Check(src.data(), from, to, kCount, scale), "") << Name(from) << " to " << Name(to);
      }
    }
  }
}

TEST_P(ConvertTest, AnyCountAndAlignment) {
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      if (!IsConvertible(from, to)) continue;
      for (size_t count : {0, 1, 3, 7, 13, 127, 4096}) {
        for (size_t misalignment : {0, 1, 2, 5}) {
          Buffer src(from, count, misalignment);
          FillRandom(random_, Numbers::kAnyBits, from, count, src.data());
          EXPECT_EQ(Check(src.data(), from, to, count, {.divisor = 3}, 7 - misalignment), "")
              << Name(from) << " to " << Name(to) << ", misaligned by " << misalignment;
        }
      }
    }
  }
}

TEST_P(ConvertTest, NarrowedNanIsQuiet) {
  const std::vector<uint32_t> signalling = {0x7F800001u, 0xFF800001u, 0x7F80FFFFu, 0x7FBFFFFFu};
  for (DType to : {DType::kFloat16, DType::kBfloat16}) {
    Buffer dst(to, signalling.size());
    Convert(signalling.data(), DType::kFloat32, dst.data(), to, signalling.size());
    for (size_t i = 0; i < signalling.size(); ++i) EXPECT_TRUE(testing::IsQuietNan(dst.data(), to, i)) << Name(to);
  }
}

TEST_P(ConvertTest, ToTheSameTypeCopiesEveryBit) {
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::kBool) continue;
    Buffer src(dtype, 1000, 3);
    Buffer dst(dtype, 1000, 5);
    FillRandom(random_, Numbers::kAnyBits, dtype, 1000, src.data());
    Convert(src.data(), dtype, dst.data(), dtype, 1000);
    EXPECT_EQ(std::memcmp(src.data(), dst.data(), src.size()), 0) << Name(dtype);
  }
}

TEST_P(ConvertTest, InPlaceWhereTheSizesAreEqual) {
  constexpr size_t kCount = 1003;
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      if (!IsConvertible(from, to) || SizeOf(from) != SizeOf(to)) continue;
      for (const Scale& scale : {Scale{}, Scale{.multiplier = 1.5}}) {
        Buffer buffer(from, kCount, 1);
        FillRandom(random_, Numbers::kNoNan, from, kCount, buffer.data());
        Buffer expected(to, kCount);
        ReferenceConvert(buffer.data(), from, expected.data(), to, kCount, scale);
        Convert(buffer.data(), from, buffer.data(), to, kCount, scale);
        EXPECT_EQ(Difference(to, kCount, expected.data(), buffer.data()), "") << Name(from) << " to " << Name(to);
      }
    }
  }
}

TEST_P(ConvertTest, CuttingABufferChangesNoBit) {
  constexpr size_t kCount = 3001;
  for (DType from : kFloatDTypes) {
    Buffer src(from, kCount);
    FillRandom(random_, Numbers::kNoNan, from, kCount, src.data());
    for (DType to : kFloatDTypes) {
      Buffer whole(to, kCount);
      Buffer cut(to, kCount);
      const Scale scale{.multiplier = 0.7};
      Convert(src.data(), from, whole.data(), to, kCount, scale);
      for (size_t at = 0, length = 0; at < kCount; at += length) {
        length = std::min<size_t>(1 + random_() % 100, kCount - at);
        Convert(src.data() + at * SizeOf(from), from, cut.data() + at * SizeOf(to), to, length, scale);
      }
      EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size()), 0) << Name(from) << " to " << Name(to);
    }
  }
}

TEST_P(ConvertTest, IntegerDivisionIsExact) {
  for (int divisor = 1; divisor <= 127; ++divisor) {
    for (int value = -128; value <= 127; ++value) {
      const std::vector<int8_t> src = {static_cast<int8_t>(value)};
      ASSERT_EQ(Converted(DType::kInt8, DType::kInt8, src, {.divisor = divisor})[0], value / divisor);
    }
  }
  const std::vector<int64_t> src = {49, -49, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  EXPECT_EQ(Converted(DType::kInt64, DType::kInt64, src, {.divisor = 49}),
            (std::vector<int64_t>{1, -1, 188232082384791343, -188232082384791343}));
  EXPECT_EQ(Converted<uint64_t>(DType::kUint64, DType::kUint64, {~uint64_t{0}, uint64_t{1} << 63}, {.divisor = 3}),
            (std::vector<uint64_t>{0x5555555555555555u, 0x2AAAAAAAAAAAAAAAu}));
}

TEST_P(ConvertTest, ScaledIntegersSaturateAndTruncate) {
  EXPECT_EQ(Converted<int8_t>(DType::kInt8, DType::kInt8, {100, -100, 3, -3}, {.multiplier = 2.5}),
            (std::vector<int8_t>{127, -128, 7, -7}));
  EXPECT_EQ(Converted<uint8_t>(DType::kUint8, DType::kUint8, {200, 1}, {.multiplier = 2, .divisor = 3}),
            (std::vector<uint8_t>{133, 0}));
  EXPECT_EQ(Converted<uint8_t>(DType::kUint8, DType::kUint8, {200, 1}, {.multiplier = -1}),
            (std::vector<uint8_t>{0, 0}));
  constexpr auto kMax32 = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Converted<int32_t>(DType::kInt32, DType::kInt32, {kMax32, -kMax32, kMax32}, {.multiplier = 1e6})[1],
            std::numeric_limits<int32_t>::min());
  constexpr auto kMax64 = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Converted<int64_t>(DType::kInt64, DType::kInt64, {kMax64, -kMax64, 10}, {.multiplier = 1.5}),
            (std::vector<int64_t>{kMax64, std::numeric_limits<int64_t>::min(), 15}));
  // The result is clamped to kMax64, because int64 cannot hold 2^63 (a double can).
  EXPECT_EQ(Converted<int64_t>(DType::kInt64, DType::kInt64, {int64_t{1} << 62}, {.multiplier = 2})[0], kMax64);
  constexpr auto kMaxUnsigned = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(Converted<uint64_t>(DType::kUint64, DType::kUint64, {uint64_t{1} << 63, 4, 4}, {.multiplier = 2}),
            (std::vector<uint64_t>{kMaxUnsigned, 8, 8}));
  EXPECT_EQ(Converted<uint16_t>(DType::kUint16, DType::kUint16, {65535, 3}, {.multiplier = 1.5}),
            (std::vector<uint16_t>{65535, 4}));
  EXPECT_EQ(Converted<int16_t>(DType::kInt16, DType::kInt16, {-30000, 3}, {.multiplier = 1.5}),
            (std::vector<int16_t>{-32768, 4}));
  EXPECT_EQ(Converted<int32_t>(DType::kInt32, DType::kInt32, {5}, {.multiplier = std::nan("")}),
            (std::vector<int32_t>{0}));
}

TEST_P(ConvertTest, BoolsBecomeZeroOrOneAndIgnoreTheScale) {
  EXPECT_EQ(Converted<uint8_t>(DType::kBool, DType::kBool, {0, 1, 2, 255}, {}), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(Converted<uint8_t>(DType::kBool, DType::kBool, {0, 1, 2, 255}, {.divisor = 100}),
            (std::vector<uint8_t>{0, 1, 1, 1}));
}

using ::ronda::testing::ReadElement;
using ::ronda::testing::RoundedTo;
using ::ronda::testing::WriteElement;

constexpr DType kNarrowDTypes[] = {DType::kFloat16, DType::kBfloat16};

// Does what ConvertWithFeedback must do by its specification, element by element.
void ReferenceConvertWithFeedback(const ConvertWithFeedbackArgs& args) {
  const double factor = args.scale.multiplier / static_cast<double>(args.scale.divisor);
  for (size_t i = 0; i < args.count; ++i) {
    const double element = ReadElement(args.src, args.src_dtype, i);
    float value = static_cast<float>(element) * static_cast<float>(factor);
    if (args.src_dtype == DType::kFloat64) value = static_cast<float>(element * factor);
    value += args.residual[i];
    const auto rounded = static_cast<float>(RoundedTo(args.dst_dtype, static_cast<double>(value)));
    WriteElement(args.dst, args.dst_dtype, i, static_cast<double>(rounded));
    const float lost = value - rounded;
    args.residual[i] = std::isfinite(lost) ? lost : 0;
  }
}

// Every test runs on every SIMD target.
class FeedbackTest : public ::testing::TestWithParam<int64_t> {
 protected:
  static void Narrow(const std::vector<float>& src, DType dst_dtype, void* dst, std::vector<float>& residual) {
    ConvertWithFeedback({.src = src.data(),
                         .src_dtype = DType::kFloat32,
                         .dst = dst,
                         .dst_dtype = dst_dtype,
                         .count = src.size(),
                         .scale = {},
                         .residual = residual.data()});
  }

  Random random_{20240611};  // fixed, so that a failure repeats
  ForcedTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, FeedbackTest, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

TEST_P(FeedbackTest, MatchesItsDefinition) {
  for (DType from : kFloatDTypes) {
    for (DType to : kNarrowDTypes) {
      for (size_t count : {0, 1, 3, 7, 13, 127, 4097}) {
        for (Numbers numbers : {Numbers::kOrdinary, Numbers::kAnyBits}) {
          const size_t misalignment = random_() % 8;
          Buffer src(from, count, misalignment);
          FillRandom(random_, numbers, from, count, src.data());
          Buffer expected(to, count);
          Buffer actual(to, count, 7 - misalignment);
          Buffer expected_residual(DType::kFloat32, count);
          FillRandom(random_, Numbers::kOrdinary, DType::kFloat32, count, expected_residual.data());
          Buffer residual = expected_residual;
          ConvertWithFeedbackArgs args = {.src = src.data(),
                                          .src_dtype = from,
                                          .dst = expected.data(),
                                          .dst_dtype = to,
                                          .count = count,
                                          .scale = {.multiplier = 0.7, .divisor = 3},
                                          .residual = reinterpret_cast<float*>(expected_residual.data())};
          ReferenceConvertWithFeedback(args);
          args.dst = actual.data();
          args.residual = reinterpret_cast<float*>(residual.data());
          ConvertWithFeedback(args);
          ASSERT_EQ(Difference(to, count, expected.data(), actual.data()), "") << Name(from) << " to " << Name(to);
          ASSERT_EQ(Difference(DType::kFloat32, count, expected_residual.data(), residual.data()), "")
              << "residual, " << Name(from) << " to " << Name(to);
          ASSERT_TRUE(actual.GuardsIntact());
          ASSERT_TRUE(residual.GuardsIntact());
        }
      }
    }
  }
}

TEST_P(FeedbackTest, WithoutAResidualItConverts) {
  constexpr size_t kCount = 1003;
  std::vector<float> src(kCount);
  FillRandom(random_, Numbers::kOrdinary, DType::kFloat32, kCount, src.data());
  for (DType to : kNarrowDTypes) {
    Buffer converted(to, kCount);
    Buffer fed_back(to, kCount);
    std::vector<float> residual(kCount, 0.0f);
    Convert(src.data(), DType::kFloat32, converted.data(), to, kCount);
    Narrow(src, to, fed_back.data(), residual);
    EXPECT_EQ(Difference(to, kCount, converted.data(), fed_back.data()), "") << Name(to);
  }
}

TEST_P(FeedbackTest, InPlaceWhereTheSizesAreEqual) {
  constexpr size_t kCount = 1003;
  for (DType from : kNarrowDTypes) {
    for (DType to : kNarrowDTypes) {
      Buffer buffer(from, kCount);
      FillRandom(random_, Numbers::kOrdinary, from, kCount, buffer.data());
      Buffer expected(to, kCount);
      std::vector<float> expected_residual(kCount, 0.25f);
      std::vector<float> residual = expected_residual;
      ConvertWithFeedbackArgs args = {.src = buffer.data(),
                                      .src_dtype = from,
                                      .dst = expected.data(),
                                      .dst_dtype = to,
                                      .count = kCount,
                                      .scale = {.multiplier = 1.5},
                                      .residual = expected_residual.data()};
      ReferenceConvertWithFeedback(args);
      args.dst = buffer.data();
      args.residual = residual.data();
      ConvertWithFeedback(args);
      EXPECT_EQ(Difference(to, kCount, expected.data(), buffer.data()), "") << Name(from) << " to " << Name(to);
      EXPECT_EQ(residual, expected_residual) << Name(from) << " to " << Name(to);
    }
  }
}

TEST_P(FeedbackTest, SentAndKeptPartsAddUp) {
  constexpr size_t kCount = 100;
  std::vector<float> src(kCount);
  for (DType to : kNarrowDTypes) {
    std::vector<float> residual(kCount, 0.0f);
    std::vector<double> meant(kCount, 0.0);
    std::vector<double> sent(kCount, 0.0);
    Buffer dst(to, kCount);
    for (int round = 0; round < 500; ++round) {
      FillRandom(random_, Numbers::kOrdinary, DType::kFloat32, kCount, src.data());
      Narrow(src, to, dst.data(), residual);
      for (size_t i = 0; i < kCount; ++i) {
        meant[i] += static_cast<double>(src[i]);
        sent[i] += ReadElement(dst.data(), to, i);
      }
    }
    // The sent values plus the residual equal the sum of the inputs, except for fp32 rounding errors below 1e-4. The
    // residual alone can be up to 2^-7, because the narrow format rounds much more.
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(sent[i] + static_cast<double>(residual[i]), meant[i], 1e-4) << Name(to);
      ASSERT_LE(std::fabs(residual[i]), 0x1p-7) << Name(to);
    }
  }
}

TEST_P(FeedbackTest, AnOverflowIsNotRepeated) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> src = {1e6f, infinity, -infinity, std::nanf(""), 1.0f};
  std::vector<float> residual(src.size(), 0.5f);
  Buffer dst(DType::kFloat16, src.size());
  Narrow(src, DType::kFloat16, dst.data(), residual);
  EXPECT_EQ(ReadElement(dst.data(), DType::kFloat16, 0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(ReadElement(dst.data(), DType::kFloat16, 4), 1.5);
  EXPECT_EQ(residual, std::vector<float>(src.size(), 0.0f));
}

}  // namespace

}  // namespace ronda::kernels
