// SPDX-License-Identifier: Apache-2.0

// Compares Reduce with kernels/cpu, bit for bit.
#include "kernels/cpu/reduce.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/fp8.h"
#include "tests/kernels/cuda/runner.h"
#include "tests/kernels/kernel_testing.h"

namespace ronda::kernels::cuda {
namespace {

constexpr size_t kCounts[] = {0, 1, 3, 7, 13, 255, 256, 257, 4096};

struct Case {
  DType dtype;
  ReduceOp op;
  Scale scale;
  size_t sources;
  size_t count;
};

std::string Describe(const Case& test) {
  return absl::StrCat(Name(test.op), " of ", test.sources, " x ", test.count, " ", Name(test.dtype), ", scale ",
                      test.scale.multiplier, "/", test.scale.divisor);
}

class ReduceTest : public ::testing::Test {
 protected:
  enum class Place { kApart, kOverTheFirst, kMisaligned };

  void SetUp() override {
    const std::string why_not = WhyNotHere();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }

  // Returns the addresses of the sources, which are consecutive in `wires`.
  static std::vector<const void*> SourcesAt(const SharedBytes& wires, size_t stride, size_t sources) {
    std::vector<const void*> all;
    for (size_t i = 0; i < sources; ++i) all.push_back(wires.data() + i * stride);
    return all;
  }

  // Returns how the result differs from that of the CPU, or "" if they are equal.
  std::string Check(const Case& test, Place place = Place::kApart) {
    const size_t bytes = test.count * SizeOf(test.dtype);
    const size_t stride = (bytes + 15) / 16 * 16;
    const SharedBytes wires(stride * test.sources);
    FillRandom(random_, Numbers::kAnyBits, test.dtype, wires.size() / SizeOf(test.dtype), wires.data());
    const SharedBytes expected(bytes);
    Reduce({.sources = SourcesAt(wires, stride, test.sources),
            .dtype = test.dtype,
            .op = test.op,
            .scale = test.scale,
            .dst = expected.data(),
            .dst_dtype = test.dtype,
            .count = test.count});
    const SharedBytes apart(bytes, place == Place::kMisaligned ? 3 : 0);
    void* dst = place == Place::kOverTheFirst ? wires.data() : apart.data();
    const int error = RunCall(ReduceCall{.sources = wires.data(),
                                         .stride = stride,
                                         .source_count = static_cast<int>(test.sources),
                                         .wire = {.dtype = test.dtype},
                                         .op = test.op,
                                         .scale = test.scale,
                                         .dst = dst,
                                         .granules = test.count});
    if (error != 0) return absl::StrCat(Describe(test), ": error ", error);
    if (!apart.GuardsIntact() || !wires.GuardsIntact()) return "wrote outside of the destination";
    const std::string difference = Difference(test.dtype, test.count, expected.data(), dst);
    return difference.empty() ? "" : absl::StrCat(Describe(test), ": ", difference);
  }

  // Like Check, but reduces blocks of 8-bit codes. The result replaces the first source.
  std::string CheckBlocks(Wire::Blocks blocks, ReduceOp op, size_t count, Numbers numbers) {
    constexpr size_t kSources = 3;
    constexpr Scale kScale = {.multiplier = 0.5, .divisor = 3};
    const Fp8Format format = blocks == Wire::Blocks::kE4M3 ? Fp8Format::kE4M3 : Fp8Format::kE5M2;
    const size_t stride = (Fp8Bytes(count) + 15) / 16 * 16;
    const SharedBytes wires(kSources * stride);
    std::vector<float> values(count);
    for (size_t i = 0; i < kSources; ++i) {
      FillRandom(random_, numbers, DType::kFloat32, count, values.data());
      EncodeFp8({.src = values.data(),
                 .src_dtype = DType::kFloat32,
                 .count = count,
                 .format = format,
                 .blocks = wires.data() + i * stride});
    }
    const SharedBytes expected(Fp8Bytes(count));
    ReduceFp8({.sources = SourcesAt(wires, stride, kSources),
               .format = format,
               .op = op,
               .scale = kScale,
               .count = count,
               .dst = expected.data()});
    const int error = RunCall(ReduceCall{.sources = wires.data(),
                                         .stride = stride,
                                         .source_count = kSources,
                                         .wire = {.blocks = blocks},
                                         .op = op,
                                         .scale = kScale,
                                         .dst = wires.data(),
                                         .granules = Fp8BlockCount(count)});
    if (error != 0) return absl::StrCat("error ", error);
    const std::string difference = Difference(DType::kUint8, expected.size(), expected.data(), wires.data());
    return difference.empty() ? "" : absl::StrCat(Name(op), " of ", count, " in blocks: ", difference);
  }

  Random random_{20240607};  // fixed, so that a failure repeats
};

TEST_F(ReduceTest, EveryOperatorOfEveryTypeIsTheCpus) {
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllOps) {
      if (!Supports(op, dtype)) continue;
      for (const Scale& scale : {Scale{}, Scale{.divisor = 3}, Scale{.multiplier = 0.3}}) {
        for (size_t sources : {1, 2, 3, 8}) EXPECT_EQ(Check({dtype, op, scale, sources, 257}), "");
      }
    }
  }
}

TEST_F(ReduceTest, EveryCountIsTheCpus) {
  for (DType dtype : kAllDTypes) {
    for (size_t count : kCounts) {
      EXPECT_EQ(Check({dtype, ReduceOp::kSum, {.divisor = 4}, 4, count}), "");
      EXPECT_EQ(Check({dtype, ReduceOp::kMax, {}, 3, count}, Place::kOverTheFirst), "");
      EXPECT_EQ(Check({dtype, ReduceOp::kSum, {}, 2, count}, Place::kMisaligned), "");
    }
  }
  EXPECT_EQ(Check({DType::kBfloat16, ReduceOp::kSum, {.divisor = 2}, 2, (1 << 20) + 1}), "");
}

TEST_F(ReduceTest, BlocksAreTheCpus) {
  for (Wire::Blocks blocks : {Wire::Blocks::kE4M3, Wire::Blocks::kE5M2}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      for (size_t count : {1, 255, 256, 257, 4096, 40000}) {
        EXPECT_EQ(CheckBlocks(blocks, op, count, Numbers::kOrdinary), "");
        EXPECT_EQ(CheckBlocks(blocks, op, count, Numbers::kAnyBits), "");
      }
    }
  }
}

TEST_F(ReduceTest, UnsupportedCallIsAnError) {
  const SharedBytes memory(64);
  ReduceCall call = {.sources = memory.data(),
                     .source_count = 1,
                     .wire = {.dtype = DType::kFloat16},
                     .op = ReduceOp::kBitXor,
                     .dst = memory.data(),
                     .granules = 1};
  EXPECT_NE(RunCall(call), 0);
  call.wire = {.blocks = Wire::Blocks::kE5M2};
  EXPECT_NE(RunCall(call), 0);
}

}  // namespace
}  // namespace ronda::kernels::cuda
