#include "bench/collectives/collective_case.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

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

TEST(MakeCasesTest, NothingIsSmallerThanAnElement) {
  const CaseRanges ranges = {.min_bytes = 1, .max_bytes = 8, .factor = 2};
  EXPECT_EQ(BytesOf(MakeCases(ranges, 2)), (std::vector<size_t>{4, 8}));
}

TEST(MakeCasesTest, SharesAddUpToTheSize) {
  const CaseRanges ranges = {.ops = {"allgather", "reducescatter", "alltoall"}, .min_bytes = 64, .max_bytes = 64};
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
  const CaseRanges all = {.ops = OpNames(),
                          .min_bytes = 64,
                          .max_bytes = 64,
                          .dtypes = DTypeNames(),
                          .wires = WireNames(),
                          .placements = PlacementNames()};
  std::set<std::string> labels;
  int barriers = 0;
  for (const CollectiveCase& shape : MakeCases(all, 2)) {
    EXPECT_TRUE(labels.insert(shape.label()).second) << shape.label();
    barriers += shape.op == OpType::kBarrier ? 1 : 0;
    if (shape.wire == WireFormat::kNone) continue;
    EXPECT_TRUE(IsReduction(shape.op)) << shape.label();
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

}  // namespace
}  // namespace ronda::bench
