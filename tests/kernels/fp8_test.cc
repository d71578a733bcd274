// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/fp8.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/reference_fp8.h"

namespace ronda::kernels {
namespace {

constexpr Fp8Format kFormats[] = {Fp8Format::kE4M3, Fp8Format::kE5M2};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every test runs on every SIMD target, with both formats.
class Fp8Test : public ::testing::TestWithParam<std::tuple<int64_t, Fp8Format>> {
 protected:
  // Encodes `src`. Returns how the bytes differ from the reference, or "" if they are equal.
  std::string CheckEncode(const void* src, DType src_dtype, size_t count, const Scale& scale,
                          size_t misalignment = 0) const {
    Buffer expected(DType::kUint8, Fp8Bytes(count));
    Buffer actual(DType::kUint8, Fp8Bytes(count), misalignment);
    EncodeFp8Args args = {
        .src = src, .src_dtype = src_dtype, .count = count, .scale = scale, .format = format_, .blocks = nullptr};
    args.blocks = expected.data();
    ReferenceEncodeFp8(args);
    args.blocks = actual.data();
    EncodeFp8(args);
    if (!actual.GuardsIntact()) return "wrote outside of the blocks";
    return Difference(DType::kUint8, Fp8Bytes(count), expected.data(), actual.data());
  }

  std::string CheckEncode(const std::vector<float>& values) const {
    return CheckEncode(values.data(), DType::kFloat32, values.size(), {});
  }

  std::string CheckDecode(const void* blocks, DType dst_dtype, size_t count, size_t misalignment = 0) const {
    Buffer expected(dst_dtype, count);
    Buffer actual(dst_dtype, count, misalignment);
    ReferenceDecodeFp8(blocks, format_, expected.data(), dst_dtype, count);
    DecodeFp8(blocks, format_, actual.data(), dst_dtype, count);
    if (!actual.GuardsIntact()) return "wrote outside of the destination";
    return Difference(dst_dtype, count, expected.data(), actual.data());
  }

  std::vector<uint8_t> Encoded(const std::vector<float>& values, const Scale& scale = {}) const {
    std::vector<uint8_t> blocks(Fp8Bytes(values.size()), 0xEE);
    EncodeFp8({.src = values.data(),
               .src_dtype = DType::kFloat32,
               .count = values.size(),
               .scale = scale,
               .format = format_,
               .blocks = blocks.data()});
    return blocks;
  }

  std::vector<float> Decoded(const std::vector<uint8_t>& blocks, size_t count) const {
    std::vector<float> values(count);
    DecodeFp8(blocks.data(), format_, values.data(), DType::kFloat32, count);
    return values;
  }

  static float ScaleOf(const std::vector<uint8_t>& blocks, size_t block = 0) {
    float scale;
    std::memcpy(&scale, blocks.data() + block * kFp8BlockBytes, sizeof(scale));
    return scale;
  }

  // Returns the codes of the finite, non-negative numbers in ascending order.
  std::vector<uint8_t> MagnitudeCodes() const {
    std::vector<uint8_t> codes;
    for (uint8_t code = 0; code < 0x80; ++code) {
      if (std::isfinite(DoubleFromCode(format_, code))) codes.push_back(code);
    }
    return codes;
  }

  const Fp8Format format_ = std::get<1>(GetParam());
  Random random_{20240609};  // fixed, so that a failure repeats
  ForcedTarget target_{std::get<0>(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(TargetsAndFormats, Fp8Test,
                         ::testing::Combine(::testing::ValuesIn(SimdTargets()), ::testing::ValuesIn(kFormats)),
                         [](const auto& info) {
                           const char* format = std::get<1>(info.param) == Fp8Format::kE4M3 ? "E4M3" : "E5M2";
                           return absl::StrCat(hwy::TargetName(std::get<0>(info.param)), "_", format);
                         });

TEST_P(Fp8Test, EveryCodeDecodesAtEveryScale) {
  std::vector<uint8_t> block(kFp8BlockBytes);
  for (size_t code = 0; code < kFp8BlockElements; ++code) block[sizeof(float) + code] = static_cast<uint8_t>(code);
  const int largest_exponent = format_ == Fp8Format::kE4M3 ? 119 : 112;
  for (int exponent = -126; exponent <= largest_exponent; ++exponent) {
    const float scale = std::ldexp(1.0f, exponent);
    std::memcpy(block.data(), &scale, sizeof(scale));
    for (DType dtype : kFloatDTypes) {
      ASSERT_EQ(CheckDecode(block.data(), dtype, kFp8BlockElements), "") << Name(dtype) << ", scale 2^" << exponent;
    }
  }
}

TEST_P(Fp8Test, EveryFiniteCodeSurvivesTheRoundTripAtEveryScale) {
  std::vector<uint8_t> codes = MagnitudeCodes();
  for (uint8_t code : MagnitudeCodes()) codes.push_back(code | 0x80);
  std::vector<uint8_t> block(kFp8BlockBytes);
  std::copy(codes.begin(), codes.end(), block.begin() + sizeof(float));
  const int largest_exponent = format_ == Fp8Format::kE4M3 ? 119 : 112;
  for (int exponent = -126; exponent <= largest_exponent; ++exponent) {
    const float scale = std::ldexp(1.0f, exponent);
    std::memcpy(block.data(), &scale, sizeof(scale));
    ASSERT_EQ(Encoded(Decoded(block, codes.size())), block) << "scale 2^" << exponent;
  }
}

// Tests the midpoint between the numbers of each code and the next (the tie), and the numbers just below and above it.
TEST_P(Fp8Test, RoundsToNearestEvenAtEveryBoundary) {
  const std::vector<uint8_t> codes = MagnitudeCodes();
  for (int exponent : {-126, -120, -1, 0, 7, 112}) {
    const float scale = std::ldexp(1.0f, exponent);
    std::vector<float> values;
    for (size_t i = 0; i + 1 < codes.size(); ++i) {
      if (values.size() % kFp8BlockElements == 0) {
        values.push_back(static_cast<float>(LargestCode(format_)) * scale);  // so that every block has this scale
      }
      const double tie = (DoubleFromCode(format_, codes[i]) + DoubleFromCode(format_, codes[i + 1])) / 2;
      const float middle = static_cast<float>(tie) * scale;
      for (float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInfinity)}) {
        values.push_back(value);
        values.push_back(-value);
      }
      // The next six numbers must be in the same block. If they do not fit into the current block, fills it up.
      if (values.size() % kFp8BlockElements > kFp8BlockElements - 6) {
        values.resize((values.size() / kFp8BlockElements + 1) * kFp8BlockElements);
      }
    }
    ASSERT_EQ(CheckEncode(values), "") << "scale 2^" << exponent;
    ASSERT_EQ(ScaleOf(Encoded(values)), scale);
    const uint8_t even_of_first_tie = Encoded(values)[sizeof(float) + 1];
    EXPECT_EQ(even_of_first_tie, 0) << "half of the smallest number";
  }
}

TEST_P(Fp8Test, TheScaleIsTheSmallestThatSuffices) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    const float limit = 1.75f * power;
    for (float largest : {power, limit, std::nextafter(limit, 0.0f), std::nextafter(limit, kInfinity),
                          std::nextafter(2 * power, 0.0f), -limit, -std::nextafter(limit, kInfinity)}) {
      if (!std::isfinite(largest)) continue;
      std::vector<float> values(kFp8BlockElements, largest / 3);
      values[random_() % values.size()] = largest;
      ASSERT_EQ(CheckEncode(values), "") << largest;
      const double scale = ScaleOf(Encoded(values));
      const double magnitude = std::fabs(largest);
      if (magnitude <= 1.75 * 0x1p127) {
        EXPECT_GE(scale * LargestCode(format_), magnitude);
      }
      if (scale > 0x1p-126) {
        EXPECT_LT(scale / 2 * LargestCode(format_), magnitude);
      }
    }
  }
}

TEST_P(Fp8Test, ZerosKeepTheirSignAndHaveScaleOne) {
  std::vector<float> zeros(300, 0.0f);
  zeros[3] = -0.0f;
  const std::vector<uint8_t> blocks = Encoded(zeros);
  EXPECT_EQ(ScaleOf(blocks, 0), 1.0f);
  EXPECT_EQ(ScaleOf(blocks, 1), 1.0f);
  EXPECT_EQ(std::count(blocks.begin() + 4, blocks.begin() + kFp8BlockBytes, 0), 255);
  EXPECT_EQ(blocks[4 + 3], 0x80);
  EXPECT_TRUE(std::signbit(Decoded(blocks, 300)[3]));
}

TEST_P(Fp8Test, NonFiniteNumbersSpoilOnlyThemselves) {
  std::vector<float> values(kFp8BlockElements);
  FillRandom(random_, Numbers::kOrdinary, DType::kFloat32, values.size(), values.data());
  const std::vector<float> undisturbed = Decoded(Encoded(values), values.size());
  const float scale = ScaleOf(Encoded(values));
  // Puts special numbers only where they do not replace the largest number.
  for (float special : {kInfinity, -kInfinity, kNan, -kNan}) {
    std::vector<float> disturbed = values;
    const float largest =
        *std::max_element(values.begin(), values.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    for (size_t i = 0; i < values.size(); i += 7) {
      if (values[i] != largest) disturbed[i] = special;
    }
    ASSERT_EQ(CheckEncode(disturbed), "");
    const std::vector<uint8_t> blocks = Encoded(disturbed);
    EXPECT_EQ(ScaleOf(blocks), scale);
    const std::vector<float> decoded = Decoded(blocks, values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(disturbed[i])) {
        ASSERT_EQ(decoded[i], undisturbed[i]);
      } else if (format_ == Fp8Format::kE5M2 && !std::isnan(special)) {
        ASSERT_EQ(decoded[i], special);
      } else {
        ASSERT_TRUE(std::isnan(decoded[i]));
        ASSERT_EQ(blocks[sizeof(float) + i], format_ == Fp8Format::kE4M3 ? 0x7F : 0x7E);
      }
    }
  }
}

TEST_P(Fp8Test, ABlockOfNothingFinite) {
  EXPECT_EQ(CheckEncode({kInfinity, kNan, -kInfinity, -kNan}), "");
  EXPECT_EQ(ScaleOf(Encoded({kInfinity, kNan})), 1.0f);
}

TEST_P(Fp8Test, ValueThatRoundsAboveTheLargestCodeOverflows) {
  const float largest = 1.75f * 0x1p127f;
  const float tie = format_ == Fp8Format::kE4M3 ? 1.8125f * 0x1p127f : 1.875f * 0x1p127f;
  const float max = std::numeric_limits<float>::max();
  const std::vector<float> values = {largest, tie,     std::nextafter(tie, 0.0f), std::nextafter(tie, kInfinity), max,
                                     -max,    0x1p126f};
  ASSERT_EQ(CheckEncode(values), "");
  const std::vector<float> decoded = Decoded(Encoded(values), values.size());
  EXPECT_EQ(decoded[0], largest);
  EXPECT_EQ(decoded[2], largest);
  EXPECT_FALSE(std::isfinite(decoded[3]));
  EXPECT_FALSE(std::isfinite(decoded[4]));
  EXPECT_FALSE(std::isfinite(decoded[5]));
  EXPECT_EQ(decoded[6], 0x1p126f);
}

TEST_P(Fp8Test, AnyCountTypeScaleAndAlignment) {
  for (DType dtype : kFloatDTypes) {
    for (size_t count : {0, 1, 3, 127, 255, 256, 257, 511, 512, 1000, 4097}) {
      for (Numbers numbers : {Numbers::kOrdinary, Numbers::kAnyBits}) {
        for (const Scale& scale : {Scale{}, Scale{.multiplier = -1.0}, Scale{.multiplier = 1e-3, .divisor = 7}}) {
          const size_t misalignment = random_() % 8;
          Buffer src(dtype, count, misalignment);
          FillRandom(random_, numbers, dtype, count, src.data());
          ASSERT_EQ(CheckEncode(src.data(), dtype, count, scale, 7 - misalignment), "") << Name(dtype) << " " << count;
        }
      }
      std::vector<uint8_t> blocks(Fp8Bytes(count) + 1);
      std::vector<float> values(count);
      FillRandom(random_, Numbers::kNoNan, DType::kFloat32, count, values.data());
      const std::vector<uint8_t> encoded = Encoded(values);
      std::copy(encoded.begin(), encoded.end(), blocks.begin() + 1);
      ASSERT_EQ(CheckDecode(blocks.data() + 1, dtype, count, random_() % 8), "") << Name(dtype) << " " << count;
    }
  }
}

TEST_P(Fp8Test, ManyMagnitudesInABlock) {
  std::vector<float> values(20 * kFp8BlockElements);
  for (float& value : values) {
    const auto exponent = static_cast<int>(random_() % 40) - 20;
    value = std::ldexp(static_cast<float>(random_() % (1 << 24)) - (1 << 23), exponent - 23);
  }
  EXPECT_EQ(CheckEncode(values), "");
}

TEST_P(Fp8Test, UnusedCodesAreZeroWhateverTheScale) {
  const std::vector<uint8_t> blocks = Encoded(std::vector<float>(kFp8BlockElements + 5, 3.0f), {.multiplier = -1.0});
  const auto first_unused = blocks.begin() + kFp8BlockBytes + sizeof(float) + 5;
  EXPECT_EQ(std::count(first_unused, blocks.end(), 0), blocks.end() - first_unused);
}

TEST_P(Fp8Test, TheErrorIsHalfTheLastPlace) {
  const double relative = format_ == Fp8Format::kE4M3 ? 0x1p-4 : 0x1p-3;
  const double absolute = format_ == Fp8Format::kE4M3 ? 0x1p-10 : 0x1p-17;
  std::vector<float> values(2000);
  FillRandom(random_, Numbers::kOrdinary, DType::kFloat32, values.size(), values.data());
  const std::vector<uint8_t> blocks = Encoded(values);
  const std::vector<float> decoded = Decoded(blocks, values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double bound = std::max(relative * std::fabs(values[i]), absolute * ScaleOf(blocks, i / kFp8BlockElements));
    ASSERT_LE(std::fabs(decoded[i] - values[i]), bound) << values[i];
  }
}

TEST_P(Fp8Test, FeedbackMatchesItsDefinition) {
  for (DType dtype : kFloatDTypes) {
    for (size_t count : {1, 255, 256, 700}) {
      for (Numbers numbers : {Numbers::kOrdinary, Numbers::kAnyBits}) {
        Buffer src(dtype, count, 1);
        FillRandom(random_, numbers, dtype, count, src.data());
        std::vector<float> expected_residual(count);
        FillRandom(random_, Numbers::kOrdinary, DType::kFloat32, count, expected_residual.data());
        std::vector<float> residual = expected_residual;
        std::vector<uint8_t> expected(Fp8Bytes(count));
        std::vector<uint8_t> actual(Fp8Bytes(count));
        EncodeFp8Args args = {
            .src = src.data(), .src_dtype = dtype, .count = count, .scale = {.divisor = 3}, .format = format_};
        args.blocks = expected.data();
        args.residual = expected_residual.data();
        ReferenceEncodeFp8(args);
        args.blocks = actual.data();
        args.residual = residual.data();
        EncodeFp8(args);
        ASSERT_EQ(actual, expected) << Name(dtype);
        ASSERT_EQ(std::memcmp(residual.data(), expected_residual.data(), count * sizeof(float)), 0) << Name(dtype);
      }
    }
  }
}

// With error feedback, even a number far too small for the scale of its block gets through after many steps.
TEST_P(Fp8Test, FeedbackDeliversWhatEachRoundLoses) {
  std::vector<float> values(kFp8BlockElements, 1e-7f);
  values[0] = 1.0f;
  std::vector<float> residual(values.size(), 0.0f);
  std::vector<uint8_t> blocks(Fp8Bytes(values.size()));
  double sum = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    EncodeFp8({.src = values.data(),
               .src_dtype = DType::kFloat32,
               .count = values.size(),
               .scale = {},
               .format = format_,
               .blocks = blocks.data(),
               .residual = residual.data()});
    sum += static_cast<double>(Decoded(blocks, values.size())[100]);
  }
  EXPECT_NEAR(sum + residual[100], kRounds * 1e-7, 1e-9);
  EXPECT_GT(sum, 0.0);
}

}  // namespace
}  // namespace ronda::kernels
