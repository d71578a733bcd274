// SPDX-License-Identifier: Apache-2.0

// Compares Unpack with kernels/cpu, bit for bit.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/fp8.h"
#include "tests/kernels/cuda/runner.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels::cuda {
namespace {

constexpr Scale kNoScale = {};
constexpr Scale kSomeScale = {.multiplier = 1.25, .divisor = 3};

// The part of a tensor to unpack.
struct Wanted {
  size_t count;
  size_t skip;
  size_t misalignment;
};

size_t RoundedUp(size_t bytes) { return (bytes + 15) / 16 * 16; }

class UnpackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = WhyNotHere();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }

  // Returns packed data with random content: elements or blocks of 8-bit codes.
  SharedBytes RandomWire(const Wire& wire, size_t count) {
    if (wire.blocks == Wire::Blocks::kNone) {
      SharedBytes bytes(RoundedUp(count * SizeOf(wire.dtype)));
      FillRandom(random_, Numbers::kAnyBits, wire.dtype, count, bytes.data());
      return bytes;
    }
    SharedBytes bytes(RoundedUp(Fp8Bytes(count)));
    std::vector<float> values(count);
    FillRandom(random_, Numbers::kOrdinary, DType::kFloat32, count, values.data());
    if (count > 3) values[3] = std::numeric_limits<float>::quiet_NaN();
    if (count > 5) values[5] = -std::numeric_limits<float>::infinity();
    EncodeFp8({.src = values.data(),
               .src_dtype = DType::kFloat32,
               .count = count,
               .format = wire.blocks == Wire::Blocks::kE4M3 ? Fp8Format::kE4M3 : Fp8Format::kE5M2,
               .blocks = bytes.data()});
    return bytes;
  }

  // Unpacks each part in `wanted` from a separate packed tensor. Returns how the result differs from that of the CPU,
  // or "" if they are equal.
  std::string Check(DType dtype, const Wire& wire, const Scale& scale, const std::vector<Wanted>& wanted) {
    size_t granules = 0;
    std::vector<size_t> firsts;  // the first element of each tensor, after whole blocks
    for (const Wanted& one : wanted) {
      firsts.push_back(granules);
      granules += RoundedUp(Fp8BlockCount(one.skip + one.count) + 1) * kFp8BlockElements;
    }
    const SharedBytes bytes = RandomWire(wire, granules);
    std::vector<SharedBytes> outputs;
    std::vector<UnpackSegment> segments;
    for (size_t i = 0; i < wanted.size(); ++i) {
      outputs.emplace_back(wanted[i].count * SizeOf(dtype), wanted[i].misalignment);
      segments.push_back({.output = outputs.back().data(),
                          .count = wanted[i].count,
                          .offset = OffsetOf(wire, firsts[i]),
                          .skip = wanted[i].skip});
    }
    const int error = RunCall(UnpackCall{.segments = segments.data(),
                                         .segment_count = static_cast<int>(segments.size()),
                                         .dtype = dtype,
                                         .wire = wire,
                                         .scale = scale,
                                         .buffer = bytes.data()});
    if (error != 0) return absl::StrCat("error ", error);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const SharedBytes expected = Expected(dtype, wire, scale, bytes.data() + segments[i].offset, wanted[i]);
      const std::string difference = Difference(dtype, wanted[i].count, expected.data(), outputs[i].data());
      if (!outputs[i].GuardsIntact()) return absl::StrCat("wrote outside of tensor ", i);
      if (!difference.empty()) return absl::StrCat(Name(dtype), " tensor ", i, ": ", difference);
    }
    return "";
  }

  static size_t OffsetOf(const Wire& wire, size_t element) {
    if (wire.blocks == Wire::Blocks::kNone) return element * SizeOf(wire.dtype);
    return element / kFp8BlockElements * kFp8BlockBytes;
  }

  // Returns the expected result, from kernels/cpu.
  static SharedBytes Expected(DType dtype, const Wire& wire, const Scale& scale, const uint8_t* tensor,
                              const Wanted& wanted) {
    SharedBytes expected(wanted.count * SizeOf(dtype));
    if (wire.blocks == Wire::Blocks::kNone) {
      Convert(tensor + wanted.skip * SizeOf(wire.dtype), wire.dtype, expected.data(), dtype, wanted.count, scale);
      return expected;
    }
    std::vector<float> decoded(wanted.skip + wanted.count);
    const Fp8Format format = wire.blocks == Wire::Blocks::kE4M3 ? Fp8Format::kE4M3 : Fp8Format::kE5M2;
    DecodeFp8(tensor, format, decoded.data(), DType::kFloat32, decoded.size());
    Convert(decoded.data() + wanted.skip, DType::kFloat32, expected.data(), dtype, wanted.count, scale);
    return expected;
  }

  Random random_{20240607};  // fixed, so that a failure repeats
};

TEST_F(UnpackTest, EveryConversionIsTheCpus) {
  std::vector<Wanted> wanted;
  for (size_t count : {0, 1, 3, 13, 255, 256, 257, 4096, 4097}) {
    for (size_t skip : {0, 1, 4, 255, 256, 300}) wanted.push_back({count, skip, (count + skip) % 5 * 4});
    wanted.push_back({count, 0, 1});
  }
  for (const Scale& scale : {kNoScale, kSomeScale}) {
    for (DType dtype : kAllDTypes) EXPECT_EQ(Check(dtype, {.dtype = dtype}, scale, wanted), "");
    for (DType to : kFloatDTypes) {
      for (DType from : kFloatDTypes) EXPECT_EQ(Check(to, {.dtype = from}, scale, wanted), "") << Name(from);
      EXPECT_EQ(Check(to, {.blocks = Wire::Blocks::kE4M3}, scale, wanted), "") << "E4M3";
      EXPECT_EQ(Check(to, {.blocks = Wire::Blocks::kE5M2}, scale, wanted), "") << "E5M2";
    }
  }
}

TEST_F(UnpackTest, ManyTensorsAreTheCpus) {
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < 1000; ++i) wanted.push_back({random_() % 300, random_() % 20, random_() % 4 * 4});
  EXPECT_EQ(Check(DType::kFloat32, {.dtype = DType::kFloat16}, kSomeScale, wanted), "");
  EXPECT_EQ(Check(DType::kFloat32, {.blocks = Wire::Blocks::kE4M3}, kSomeScale, wanted), "");
}

TEST_F(UnpackTest, LargeTensorsAreTheCpus) {
  EXPECT_EQ(Check(DType::kFloat32, {.dtype = DType::kBfloat16}, kSomeScale, {{(1 << 20) + 1, 0, 0}}), "");
}

// Tests every code of both formats, in blocks with every possible scale.
TEST_F(UnpackTest, EveryCodeDecodesAsOnTheCpu) {
  for (Wire::Blocks blocks : {Wire::Blocks::kE4M3, Wire::Blocks::kE5M2}) {
    const int scales = blocks == Wire::Blocks::kE4M3 ? 246 : 239;
    SharedBytes wire(scales * kFp8BlockBytes);
    for (int exponent = 1; exponent <= scales; ++exponent) {
      uint8_t* block = wire.data() + (exponent - 1) * kFp8BlockBytes;
      const uint32_t scale = static_cast<uint32_t>(exponent) << 23;
      std::memcpy(block, &scale, sizeof(scale));
      for (int code = 0; code < 256; ++code) block[sizeof(scale) + code] = static_cast<uint8_t>(code);
    }
    const Wanted all = {.count = scales * kFp8BlockElements, .skip = 0, .misalignment = 0};
    const SharedBytes output(all.count * sizeof(float));
    const UnpackSegment segment = {.output = output.data(), .count = all.count};
    ASSERT_EQ(RunCall(UnpackCall{
                  .segments = &segment, .segment_count = 1, .wire = {.blocks = blocks}, .buffer = wire.data()}),
              0);
    const SharedBytes expected = Expected(DType::kFloat32, {.blocks = blocks}, kNoScale, wire.data(), all);
    EXPECT_EQ(Difference(DType::kFloat32, all.count, expected.data(), output.data()), "");
  }
}

}  // namespace
}  // namespace ronda::kernels::cuda
