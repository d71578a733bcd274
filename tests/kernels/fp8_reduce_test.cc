// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/cpu/fp8.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/reference_fp8.h"

namespace ronda::kernels {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

enum class Codes {
  kOrdinary,  // encoded numbers between -2 and 2
  kAny,       // every code, and scales of many magnitudes; random bytes after the last element
};

// Random sources of a reduction, each with its own alignment.
class Sources {
 public:
  Sources(Random& random, Codes codes, Fp8Format format, size_t source_count, size_t count)
      : format_(format), count_(count) {
    for (size_t s = 0; s < source_count; ++s) {
      buffers_.emplace_back(DType::kUint8, Fp8Bytes(count), random() % 16);
      Fill(random, codes, buffers_.back().data());
      pointers_.push_back(buffers_.back().data());
    }
  }

  ReduceFp8Args Args(ReduceOp op, void* dst) const {
    return {.sources = pointers_, .format = format_, .op = op, .scale = {}, .count = count_, .dst = dst};
  }

  uint8_t* data(size_t index) { return buffers_[index].data(); }

 private:
  void Fill(Random& random, Codes codes, uint8_t* blocks) const {
    if (codes == Codes::kOrdinary) {
      std::vector<float> values(count_);
      FillRandom(random, Numbers::kOrdinary, DType::kFloat32, count_, values.data());
      return ReferenceEncodeFp8({.src = values.data(),
                                 .src_dtype = DType::kFloat32,
                                 .count = count_,
                                 .scale = {},
                                 .format = format_,
                                 .blocks = blocks});
    }
    std::generate(blocks, blocks + Fp8Bytes(count_), [&] { return static_cast<uint8_t>(random()); });
    for (size_t block = 0; block < Fp8BlockCount(count_); ++block) {
      const float scale = std::ldexp(1.0f, static_cast<int>(random() % 230) - 120);
      std::memcpy(blocks + block * kFp8BlockBytes, &scale, sizeof(scale));
    }
  }

  Fp8Format format_;
  size_t count_;
  std::vector<Buffer> buffers_;
  std::vector<const void*> pointers_;
};

// Returns the first difference between the result on a SIMD target and the reference, or "" if there is none. Ignores
// `args.dst`.
std::string Check(ReduceFp8Args args, size_t dst_misalignment = 0) {
  const DType dtype = args.dst_dtype.value_or(DType::kUint8);
  const size_t elements = args.dst_dtype.has_value() ? args.count : Fp8Bytes(args.count);
  Buffer expected(dtype, elements);
  args.dst = expected.data();
  ReferenceReduceFp8(args);
  for (int64_t target : SimdTargets()) {
    ForcedTarget forced(target);
    Buffer actual(dtype, elements, dst_misalignment);
    args.dst = actual.data();
    ReduceFp8(args);
    std::string difference = Difference(dtype, elements, expected.data(), actual.data());
    if (!actual.GuardsIntact()) difference = "wrote outside of the destination";
    if (!difference.empty()) {
      return absl::StrCat(args.sources.size(), " sources on ", hwy::TargetName(target), ": ", difference);
    }
  }
  return "";
}

// Every test runs with both formats and every operator.
class Fp8ReduceTest : public ::testing::TestWithParam<std::tuple<Fp8Format, ReduceOp>> {
 protected:
  const Fp8Format format_ = std::get<0>(GetParam());
  const ReduceOp op_ = std::get<1>(GetParam());
  Random random_{20240610};  // fixed, so that a failure repeats
};

INSTANTIATE_TEST_SUITE_P(FormatsAndOps, Fp8ReduceTest,
                         ::testing::Combine(::testing::Values(Fp8Format::kE4M3, Fp8Format::kE5M2),
                                            ::testing::ValuesIn(kOps)),
                         [](const auto& info) {
                           const char* format = std::get<0>(info.param) == Fp8Format::kE4M3 ? "E4M3" : "E5M2";
                           return absl::StrCat(format, "_", Name(std::get<1>(info.param)));
                         });

TEST_P(Fp8ReduceTest, AnyNumberOfSourcesAnyLengthAnyAlignment) {
  for (size_t source_count : {1, 2, 3, 4, 7, 9}) {
    for (size_t count : {0, 1, 7, 255, 256, 257, 1000, 2048, 4097}) {
      for (Codes codes : {Codes::kOrdinary, Codes::kAny}) {
        const Sources sources(random_, codes, format_, source_count, count);
        ASSERT_EQ(Check(sources.Args(op_, nullptr), random_() % 16), "") << count << " elements";
      }
    }
  }
}

TEST_P(Fp8ReduceTest, ScaleIsAppliedBeforeRounding) {
  for (const Scale& scale : {Scale{.multiplier = 0.25}, Scale{.divisor = 3}, Scale{.multiplier = -1.5, .divisor = 7}}) {
    const Sources sources(random_, Codes::kOrdinary, format_, 3, 1003);
    ReduceFp8Args args = sources.Args(op_, nullptr);
    args.scale = scale;
    ASSERT_EQ(Check(args), "");
  }
}

TEST_P(Fp8ReduceTest, FloatsAreDecodedFromExactlyTheBlocks) {
  for (DType dtype : kFloatDTypes) {
    for (Codes codes : {Codes::kOrdinary, Codes::kAny}) {
      for (size_t count : {1, 300, 2048, 5003}) {
        const Sources sources(random_, codes, format_, 3, count);
        std::vector<uint8_t> blocks(Fp8Bytes(count));
        ReduceFp8Args args = sources.Args(op_, blocks.data());
        args.scale = {.divisor = 3};
        ReduceFp8(args);
        Buffer decoded(dtype, count);
        DecodeFp8(blocks.data(), format_, decoded.data(), dtype, count);
        Buffer direct(dtype, count);
        args.dst = direct.data();
        args.dst_dtype = dtype;
        ReduceFp8(args);
        ASSERT_EQ(Difference(dtype, count, decoded.data(), direct.data()), "") << Name(dtype);
        ASSERT_EQ(Check(args, 1), "") << Name(dtype);
      }
    }
  }
}

TEST_P(Fp8ReduceTest, TheBlocksMayReplaceAnySource) {
  constexpr size_t kSources = 4;
  constexpr size_t kCount = 1003;
  for (size_t destination = 0; destination < kSources; ++destination) {
    Sources sources(random_, Codes::kAny, format_, kSources, kCount);
    Buffer expected(DType::kUint8, Fp8Bytes(kCount));
    ReduceFp8Args args = sources.Args(op_, expected.data());
    ReferenceReduceFp8(args);
    args.dst = sources.data(destination);
    ReduceFp8(args);
    ASSERT_EQ(Difference(DType::kUint8, Fp8Bytes(kCount), expected.data(), sources.data(destination)), "")
        << "source " << destination;
  }
}

TEST_P(Fp8ReduceTest, CuttingBetweenBlocksChangesNoBit) {
  constexpr size_t kBlocks = 40;
  Sources sources(random_, Codes::kAny, format_, 2, kBlocks * kFp8BlockElements);
  std::vector<uint8_t> whole(kBlocks * kFp8BlockBytes);
  std::vector<uint8_t> cut(whole.size());
  ReduceFp8Args args = sources.Args(op_, whole.data());
  ReduceFp8(args);
  for (size_t block = 0, length = 0; block < kBlocks; block += length) {
    length = std::min<size_t>(1 + random_() % 5, kBlocks - block);
    const size_t at = block * kFp8BlockBytes;
    const std::vector<const void*> chunk = {sources.data(0) + at, sources.data(1) + at};
    args.sources = chunk;
    args.count = length * kFp8BlockElements;
    args.dst = cut.data() + at;
    ReduceFp8(args);
  }
  EXPECT_EQ(whole, cut);
}

TEST_P(Fp8ReduceTest, NanInAnySourceIsNanInTheResult) {
  for (size_t position = 0; position < 3; ++position) {
    std::vector<std::vector<uint8_t>> blocks(3, std::vector<uint8_t>(kFp8BlockBytes));
    std::vector<const void*> sources;
    for (size_t s = 0; s < 3; ++s) {
      const float value = s == position ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
      EncodeFp8({.src = &value,
                 .src_dtype = DType::kFloat32,
                 .count = 1,
                 .scale = {},
                 .format = format_,
                 .blocks = blocks[s].data()});
      sources.push_back(blocks[s].data());
    }
    float result = 0;
    ReduceFp8({.sources = sources,
               .format = format_,
               .op = op_,
               .scale = {},
               .count = 1,
               .dst = &result,
               .dst_dtype = DType::kFloat32});
    EXPECT_TRUE(std::isnan(result)) << "source " << position;
  }
}

TEST(Fp8ReduceValuesTest, SumsRoundOnce) {
  // Adds 16 + 1 + 1. If each addition were rounded to E4M3, 16 + 1 would become 16 again.
  std::vector<std::vector<uint8_t>> blocks(3, std::vector<uint8_t>(kFp8BlockBytes));
  std::vector<const void*> sources;
  for (size_t s = 0; s < 3; ++s) {
    const float value = s == 0 ? 16.0f : 1.0f;
    EncodeFp8({.src = &value,
               .src_dtype = DType::kFloat32,
               .count = 1,
               .scale = {},
               .format = Fp8Format::kE4M3,
               .blocks = blocks[s].data()});
    sources.push_back(blocks[s].data());
  }
  float result = 0;
  ReduceFp8({.sources = sources,
             .format = Fp8Format::kE4M3,
             .op = ReduceOp::kSum,
             .scale = {},
             .count = 1,
             .dst = &result,
             .dst_dtype = DType::kFloat32});
  EXPECT_EQ(result, 18.0f);
}

}  // namespace
}  // namespace ronda::kernels
