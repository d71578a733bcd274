// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kernels/cpu/convert.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/reference_kernels.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::kernels {
namespace {

// Random sources of a reduction, each with its own alignment.
class Sources {
 public:
  Sources(Random& random, Numbers numbers, DType dtype, size_t source_count, size_t count)
      : dtype_(dtype), count_(count) {
    for (size_t s = 0; s < source_count; ++s) {
      buffers_.emplace_back(dtype, count, random() % 16);
      FillRandom(random, numbers, dtype, count, buffers_.back().data());
      pointers_.push_back(buffers_.back().data());
    }
  }

  // Returns the arguments of a reduction of all elements to `dst`, without conversion.
  ReduceArgs Args(ReduceOp op, void* dst) const {
    return {
        .sources = pointers_, .dtype = dtype_, .op = op, .scale = {}, .dst = dst, .dst_dtype = dtype_, .count = count_};
  }

  uint8_t* data(size_t index) { return buffers_[index].data(); }

 private:
  DType dtype_;
  size_t count_;
  std::vector<Buffer> buffers_;
  std::vector<const void*> pointers_;
};

// Returns the first difference between the result on a SIMD target and the reference, or "" if there is none. Ignores
// `args.dst`.
std::string Check(ReduceArgs args, size_t dst_misalignment = 0) {
  Buffer expected(args.dst_dtype, args.count);
  args.dst = expected.data();
  ReferenceReduce(args);
  for (int64_t target : SimdTargets()) {
    ForcedTarget forced(target);
    Buffer actual(args.dst_dtype, args.count, dst_misalignment);
    args.dst = actual.data();
    Reduce(args);
    std::string difference = Difference(args.dst_dtype, args.count, expected.data(), actual.data());
    if (!actual.GuardsIntact()) difference = "wrote outside of the destination";
    if (!difference.empty()) {
      return absl::StrCat(args.sources.size(), " sources on ", hwy::TargetName(target), ": ", difference);
    }
  }
  return "";
}

std::vector<std::tuple<DType, ReduceOp>> TypesAndOps() {
  std::vector<std::tuple<DType, ReduceOp>> pairs;
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllOps) {
      if (Supports(op, dtype)) pairs.emplace_back(dtype, op);
    }
  }
  return pairs;
}

// Every test runs with every dtype, and every operator that the dtype supports.
class ReduceTest : public ::testing::TestWithParam<std::tuple<DType, ReduceOp>> {
 protected:
  const DType dtype_ = std::get<0>(GetParam());
  const ReduceOp op_ = std::get<1>(GetParam());
  Random random_{20240608};  // fixed, so that a failure repeats
};

INSTANTIATE_TEST_SUITE_P(TypesAndOps, ReduceTest, ::testing::ValuesIn(TypesAndOps()), [](const auto& info) {
  return absl::StrCat(Name(std::get<0>(info.param)), "_", Name(std::get<1>(info.param)));
});

TEST_P(ReduceTest, AnyNumberOfSourcesAnyLengthAnyAlignment) {
  for (size_t source_count : {1, 2, 3, 4, 7, 9}) {
    for (size_t count : {0, 1, 3, 7, 13, 127, 1024, 2053}) {
      const Numbers numbers = (source_count + count) % 2 == 0 ? Numbers::kOrdinary : Numbers::kAnyBits;
      const Sources sources(random_, numbers, dtype_, source_count, count);
      ASSERT_EQ(Check(sources.Args(op_, nullptr), random_() % 16), "");
    }
  }
}

TEST_P(ReduceTest, ScaleIsAppliedBeforeRounding) {
  for (const Scale& scale : {Scale{.multiplier = 0.25}, Scale{.divisor = 3}, Scale{.multiplier = -1.5, .divisor = 7}}) {
    for (size_t source_count : {1, 2, 5}) {
      const Sources sources(random_, Numbers::kOrdinary, dtype_, source_count, 5003);
      ReduceArgs args = sources.Args(op_, nullptr);
      args.scale = scale;
      ASSERT_EQ(Check(args), "");
    }
  }
}

TEST_P(ReduceTest, RoundsToItsTypeThenConverts) {
  for (DType dst_dtype : kAllDTypes) {
    if (dst_dtype == dtype_ || !IsConvertible(dtype_, dst_dtype)) continue;
    for (Numbers numbers : {Numbers::kOrdinary, Numbers::kAnyBits}) {
      const Sources sources(random_, numbers, dtype_, 3, 5003);
      ReduceArgs args = sources.Args(op_, nullptr);
      args.dst_dtype = dst_dtype;
      args.scale = {.divisor = 3};
      ASSERT_EQ(Check(args, 1), "") << "to " << Name(dst_dtype);
    }
  }
}

TEST_P(ReduceTest, TheDestinationMayBeAnySource) {
  constexpr size_t kSources = 4;
  constexpr size_t kCount = 1003;
  for (const Scale& scale : {Scale{}, Scale{.divisor = 4}}) {
    for (size_t destination = 0; destination < kSources; ++destination) {
      Sources sources(random_, Numbers::kNoNan, dtype_, kSources, kCount);
      Buffer expected(dtype_, kCount);
      ReduceArgs args = sources.Args(op_, expected.data());
      args.scale = scale;
      ReferenceReduce(args);
      args.dst = sources.data(destination);
      Reduce(args);
      ASSERT_EQ(Difference(dtype_, kCount, expected.data(), args.dst), "") << "source " << destination;
    }
  }
}

TEST_P(ReduceTest, CuttingABufferChangesNoBit) {
  constexpr size_t kCount = 5003;
  const size_t size = SizeOf(dtype_);
  Sources sources(random_, Numbers::kNoNan, dtype_, 3, kCount);
  Buffer whole(dtype_, kCount);
  Buffer cut(dtype_, kCount);
  ReduceArgs args = sources.Args(op_, whole.data());
  args.scale = {.divisor = 3};
  Reduce(args);
  for (size_t at = 0, length = 0; at < kCount; at += length) {
    length = std::min<size_t>(1 + random_() % 200, kCount - at);
    const std::vector<const void*> chunk = {sources.data(0) + at * size, sources.data(1) + at * size,
                                            sources.data(2) + at * size};
    args.sources = chunk;
    args.dst = cut.data() + at * size;
    args.count = length;
    Reduce(args);
  }
  EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size()), 0);
}

TEST_P(ReduceTest, TargetsAgreeBitForBit) {
  constexpr size_t kCount = 5003;
  const Sources sources(random_, Numbers::kNoNan, dtype_, 5, kCount);
  Buffer first(dtype_, kCount);
  Reduce(sources.Args(op_, first.data()));
  for (int64_t target : SimdTargets()) {
    ForcedTarget forced(target);
    Buffer other(dtype_, kCount);
    Reduce(sources.Args(op_, other.data()));
    EXPECT_EQ(std::memcmp(first.data(), other.data(), first.size()), 0) << hwy::TargetName(target);
  }
}

// Reduces one element per source, on the best SIMD target.
template <class T>
T ReduceOne(DType dtype, ReduceOp op, const std::vector<T>& elements, const Scale& scale = {}) {
  std::vector<const void*> sources;
  sources.reserve(elements.size());
  for (const T& element : elements) sources.push_back(&element);
  T result;
  Reduce(
      {.sources = sources, .dtype = dtype, .op = op, .scale = scale, .dst = &result, .dst_dtype = dtype, .count = 1});
  return result;
}

TEST(ReduceValuesTest, AnAverageOfEqualIntegersIsExact) {
  for (int64_t ranks = 1; ranks <= 127; ++ranks) {
    const Scale average{.divisor = ranks};
    const auto n = static_cast<size_t>(ranks);
    EXPECT_EQ(ReduceOne(DType::kInt8, ReduceOp::kSum, std::vector<int8_t>(n, 1), average), 1);
    EXPECT_EQ(ReduceOne(DType::kInt32, ReduceOp::kSum, std::vector<int32_t>(n, -7), average), -7);
    EXPECT_EQ(ReduceOne(DType::kInt64, ReduceOp::kSum, std::vector<int64_t>(n, (int64_t{1} << 55) + 1), average),
              (int64_t{1} << 55) + 1);
  }
}

TEST(ReduceValuesTest, AnAverageOfIntegersIsRightWhereTheirSumDoesNotFit) {
  EXPECT_EQ(ReduceOne(DType::kUint8, ReduceOp::kSum, std::vector<uint8_t>{200, 201}, {.divisor = 2}), 200);
  EXPECT_EQ(ReduceOne(DType::kInt8, ReduceOp::kSum, std::vector<int8_t>{-101, -128}, {.divisor = 2}), -114);
  EXPECT_EQ(ReduceOne(DType::kInt32, ReduceOp::kSum, std::vector<int32_t>(3, INT32_MIN), {.divisor = 3}), INT32_MIN);
  EXPECT_EQ(ReduceOne(DType::kInt64, ReduceOp::kSum, std::vector<int64_t>(5, INT64_MAX), {.divisor = 5}), INT64_MAX);
  EXPECT_EQ(ReduceOne(DType::kUint64, ReduceOp::kSum, std::vector<uint64_t>(2, UINT64_MAX), {.divisor = 2}),
            UINT64_MAX);
  EXPECT_EQ(ReduceOne(DType::kUint8, ReduceOp::kSum, std::vector<uint8_t>{200, 200}, {.multiplier = 0.5}), 200);
  EXPECT_EQ(ReduceOne(DType::kUint8, ReduceOp::kSum, std::vector<uint8_t>{200, 200}, {.multiplier = 2.0}), 255);
  // Without a scale, the sum of 400 wraps around to 144, because the dtype has 8 bits.
  EXPECT_EQ(ReduceOne(DType::kUint8, ReduceOp::kSum, std::vector<uint8_t>{200, 200}), 144);
}

TEST(ReduceValuesTest, SumsOf16BitTypesRoundOnce) {
  using testing::Bf16FromDouble;
  using testing::Fp16FromDouble;
  const auto half = [](double value) { return Fp16FromDouble(value); };
  const auto brain = [](double value) { return Bf16FromDouble(value); };
  EXPECT_EQ(ReduceOne(DType::kFloat16, ReduceOp::kSum, std::vector<uint16_t>{half(2048), half(1), half(1)}),
            half(2050));
  EXPECT_EQ(ReduceOne(DType::kBfloat16, ReduceOp::kSum, std::vector<uint16_t>{brain(256), brain(1), brain(1)}),
            brain(258));
  // The sum is out of range, but the average is not.
  EXPECT_EQ(ReduceOne(DType::kFloat16, ReduceOp::kSum, std::vector<uint16_t>{half(60000), half(60000)}), half(1e9));
  EXPECT_EQ(ReduceOne(DType::kFloat16, ReduceOp::kSum, std::vector<uint16_t>{half(60000), half(60000)}, {.divisor = 2}),
            half(60000));
}

TEST(ReduceValuesTest, SourcesAreAddedInTheirOrder) {
  EXPECT_EQ(ReduceOne(DType::kFloat32, ReduceOp::kSum, std::vector<float>{1e20f, -1e20f, 1}), 1);
  EXPECT_EQ(ReduceOne(DType::kFloat32, ReduceOp::kSum, std::vector<float>{1e20f, 1, -1e20f}), 0);
}

TEST(ReduceValuesTest, MinAndMaxPropagateNanFromAnySourceAndQuietIt) {
  for (int64_t target : SimdTargets()) {
    ForcedTarget forced(target);
    for (DType dtype : kFloatDTypes) {
      for (size_t position = 0; position < 3; ++position) {
        double storage[3] = {};
        std::vector<const void*> sources;
        for (size_t s = 0; s < 3; ++s) {
          testing::WriteElement(&storage[s], dtype, 0, s == position ? std::numeric_limits<double>::infinity() : 1.0);
          sources.push_back(&storage[s]);
        }
        *reinterpret_cast<uint8_t*>(&storage[position]) |= 1;  // infinity with a payload bit is a signalling NaN
        for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
          double result = 0;
          Reduce({.sources = sources,
                  .dtype = dtype,
                  .op = op,
                  .scale = {},
                  .dst = &result,
                  .dst_dtype = dtype,
                  .count = 1});
          EXPECT_TRUE(testing::IsQuietNan(&result, dtype, 0)) << Name(op) << " of " << Name(dtype);
        }
      }
    }
  }
}

TEST(ReduceValuesTest, BoolsAreOredAndAnded) {
  const std::vector<uint8_t> mixed = {0, 2, 0};
  const std::vector<uint8_t> all = {1, 2, 255};
  const std::vector<uint8_t> none = {0, 0, 0};
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBitOr}) {
    EXPECT_EQ(ReduceOne(DType::kBool, op, mixed), 1);
    EXPECT_EQ(ReduceOne(DType::kBool, op, all), 1);
    EXPECT_EQ(ReduceOne(DType::kBool, op, none), 0);
  }
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kProduct, ReduceOp::kBitAnd}) {
    EXPECT_EQ(ReduceOne(DType::kBool, op, mixed), 0);
    EXPECT_EQ(ReduceOne(DType::kBool, op, all, {.divisor = 3}), 1);
    EXPECT_EQ(ReduceOne(DType::kBool, op, none), 0);
  }
}

TEST(ReduceValuesTest, BoolsAreXoredAsTruthValues) {
  const auto xored = [](const std::vector<uint8_t>& bools) {
    return ReduceOne(DType::kBool, ReduceOp::kBitXor, bools);
  };
  EXPECT_EQ(xored({1, 2}), 0);
  EXPECT_EQ(xored({3, 5, 255}), 1);
  EXPECT_EQ(xored({0, 128}), 1);
  EXPECT_EQ(xored({64}), 1);
  EXPECT_EQ(xored({0, 0}), 0);
}

TEST(ReduceValuesTest, BitwiseOperatorsOnSignedNumbers) {
  EXPECT_EQ(ReduceOne(DType::kInt16, ReduceOp::kBitAnd, std::vector<int16_t>{-2, 0x7F0F}), 0x7F0E);
  EXPECT_EQ(ReduceOne(DType::kInt16, ReduceOp::kBitOr, std::vector<int16_t>{-32768, 1}), -32767);
  EXPECT_EQ(ReduceOne(DType::kInt64, ReduceOp::kBitXor, std::vector<int64_t>{-1, 5, 5}), -1);
}

TEST(ReduceValuesTest, UnsignedNumbersCompareAsSuch) {
  constexpr uint64_t kBig = ~uint64_t{0};
  EXPECT_EQ(ReduceOne(DType::kUint64, ReduceOp::kMax, std::vector<uint64_t>{1, kBig, 2}), kBig);
  EXPECT_EQ(ReduceOne(DType::kUint64, ReduceOp::kMin, std::vector<uint64_t>{kBig, 1, 2}), 1u);
  EXPECT_EQ(ReduceOne(DType::kUint32, ReduceOp::kMax, std::vector<uint32_t>{1, 0xFFFFFFFFu}), 0xFFFFFFFFu);
  EXPECT_EQ(ReduceOne(DType::kUint16, ReduceOp::kMin, std::vector<uint16_t>{0xFFFF, 1}), 1);
}

}  // namespace
}  // namespace ronda::kernels
