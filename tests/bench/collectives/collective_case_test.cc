// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "bench/collectives/collective_case.h"

namespace ronda::bench {
namespace {

std::vector<size_t> BytesOf(const std::vector<CollectiveCase>& cases) {
  std::vector<size_t> bytes;
  for (const CollectiveCase& shape : cases) bytes.push_back(shape.bytes());
  return bytes;
}

TEST(MakeCasesTest, SizesGrowByTheFactor) {
  const CaseRanges ranges = {.min_bytes = 8, .max_bytes = 1024, .factor = 4};
  EXPECT_EQ(BytesOf(MakeCases(ranges, 2)), (std::vector<size_t>{8, 32, 128, 512}));
}

TEST(MakeCasesTest, SizesBelowAnElementBecomeOneElement) {
  const CaseRanges ranges = {.min_bytes = 1, .max_bytes = 8, .factor = 2};
  EXPECT_EQ(BytesOf(MakeCases(ranges, 2)), (std::vector<size_t>{4, 8}));
}

TEST(MakeCasesTest, SharesAddUpToTheSize) {
  const CaseRanges ranges = {
      .ops = {OpType::kAllgather, OpType::kReduceScatter, OpType::kAlltoall}, .min_bytes = 64, .max_bytes = 64};
  const std::vector<CollectiveCase> cases = MakeCases(ranges, 4);
  ASSERT_EQ(cases.size(), 3u);
  for (const CollectiveCase& shape : cases) {
    EXPECT_EQ(shape.count, 4u);
    EXPECT_EQ(shape.bytes(), 64u);
    EXPECT_EQ(shape.placement, Placement::kOutOfPlace);
  }
  EXPECT_EQ(cases[0].input_count(), 4u);
  EXPECT_EQ(cases[0].output_count(), 16u);
  EXPECT_EQ(cases[1].input_count(), 16u);
  EXPECT_EQ(cases[1].output_count(), 4u);
  EXPECT_EQ(cases[2].input_count(), 16u);
  EXPECT_EQ(cases[2].output_count(), 16u);
}

TEST(MakeCasesTest, EveryCombinationIsSensibleAndAppearsOnce) {
  const CaseRanges all = CaseRanges::Everything({.min_bytes = 64, .max_bytes = 64});
  std::set<std::string> labels;
  int barriers = 0;
  for (const CollectiveCase& shape : MakeCases(all, 2)) {
    EXPECT_TRUE(labels.insert(shape.label()).second) << shape.label();
    barriers += shape.op == OpType::kBarrier ? 1 : 0;
    if (shape.wire == WireFormat::kNone) continue;
    EXPECT_TRUE(TraitsOf(shape.op).reduces) << shape.label();
    EXPECT_NE(shape.dtype, DType::kInt32) << shape.label();
  }
  EXPECT_EQ(barriers, 1);
  EXPECT_EQ(labels.count("allreduce.float32.fp16.out.16"), 1u);
  EXPECT_EQ(labels.count("allreduce.float16.fp16.in.32"), 0u);
  EXPECT_EQ(labels.count("allreduce.float16.fp8_e4m3.in.32"), 1u);
  EXPECT_EQ(labels.count("broadcast.int64.none.in.8"), 1u);
}

TEST(BusFactorTest, IsWhatTheBusiestLinkCarries) {
  EXPECT_DOUBLE_EQ(BusFactor(OpType::kAllreduce, 2), 1);
  EXPECT_DOUBLE_EQ(BusFactor(OpType::kAllreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor(OpType::kAllgather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(OpType::kBroadcast, 4), 1);
  EXPECT_DOUBLE_EQ(BusFactor(OpType::kAllreduce, 1), 0);
}

// Holds the inputs of all ranks, and computes the results of operations with a second, simple implementation.
class Oracle {
 public:
  explicit Oracle(const CollectiveCase& shape) : shape_(shape) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      FillInput(shape, rank, inputs_.emplace_back(shape.input_count()).data());
    }
  }

  std::vector<float> OutputOf(int rank) const {
    std::vector<float> output(shape_.output_count());
    const size_t own = static_cast<size_t>(rank) * shape_.count;
    for (size_t i = 0; i < output.size(); ++i) {
      const size_t sender = i / shape_.count;
      switch (shape_.op) {
        case OpType::kBroadcast:
          output[i] = inputs_[0][i];
          break;
        case OpType::kAllgather:
          output[i] = inputs_[sender][i % shape_.count];
          break;
        case OpType::kAlltoall:
          output[i] = inputs_[sender][own + i % shape_.count];
          break;
        case OpType::kReduceScatter:
          output[i] = Sum(own + i);
          break;
        default:
          output[i] = Sum(i);
      }
    }
    return output;
  }

 private:
  float Sum(size_t index) const {
    float sum = 0;
    for (const std::vector<float>& input : inputs_) sum += input[index];
    return sum;
  }

  const CollectiveCase shape_;
  std::vector<std::vector<float>> inputs_;
};

constexpr OpType kOps[] = {OpType::kAllreduce, OpType::kReduce,        OpType::kBroadcast,
                           OpType::kAllgather, OpType::kReduceScatter, OpType::kAlltoall};

class ElementsTest : public testing::TestWithParam<OpType> {};

TEST_P(ElementsTest, RightResultsAreRightAndOneWrongElementIsFound) {
  constexpr size_t kCount = 5003;  // more than one block, and not a multiple of the pattern's period
  const CollectiveCase shape = {.op = GetParam(), .count = kCount, .ranks = 3};
  const Oracle oracle(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::vector<float> output = oracle.OutputOf(rank);
    EXPECT_EQ(CountWrong(shape, rank, output.data()), 0) << rank;
    output[kCount - 1] += 1;
    const bool is_read = shape.op != OpType::kReduce || rank == 0;
    EXPECT_EQ(CountWrong(shape, rank, output.data()), is_read ? 1 : 0) << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, ElementsTest, testing::ValuesIn(kOps));

TEST(CountWrongTest, AnOutputThatWasNotWrittenToIsWrong) {
  const CollectiveCase shape = {.count = 100, .ranks = 2};
  std::vector<float> output(shape.count);
  FillOutput(shape, output.data());
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 100);
}

template <typename E>
void ExpectToWrap(DType dtype) {
  const CollectiveCase shape = {.dtype = dtype, .count = 34, .ranks = 8};
  std::vector<E> output(shape.count);
  for (size_t i = 0; i < output.size(); ++i) output[i] = static_cast<E>(36 * (i % 17));
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 0);
  ++output[33];
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 1);
}

TEST(CountWrongTest, SmallIntegersWrap) {
  ExpectToWrap<uint8_t>(DType::kUint8);
  ExpectToWrap<int8_t>(DType::kInt8);
}

TEST(CountWrongTest, ASumOfBoolsIsTrueIfOneOfThemIs) {
  const CollectiveCase shape = {.dtype = DType::kBool, .count = 34, .ranks = 3};
  std::vector<uint8_t> output(shape.count, 1);
  output[0] = output[17] = 0;
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 0);
  output[1] = 0;
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 1);
}

TEST(CountWrongTest, CompressedWiresMayRoundButNotErr) {
  CollectiveCase shape = {.wire = WireFormat::kBfloat16, .count = 17, .ranks = 2};
  std::vector<float> output(shape.count);
  for (size_t i = 0; i < output.size(); ++i) output[i] = 3.01f * static_cast<float>(i);
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 0);
  for (float& value : output) value *= 1.02f;
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 16);  // all but the zero
  shape.wire = WireFormat::kFp8E4M3;
  EXPECT_EQ(CountWrong(shape, 0, output.data()), 0);
}

TEST(CountWrongTest, ABarrierHasNoElements) {
  EXPECT_EQ(CountWrong({.op = OpType::kBarrier, .ranks = 2}, 0, nullptr), 0);
}

TEST(AlignedBytesTest, BeginAtACacheLine) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100}}) {
    const AlignedBytes bytes(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 64, 0u);
    EXPECT_EQ(bytes.size(), size);
  }
}

}  // namespace
}  // namespace ronda::bench
