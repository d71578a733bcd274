#include "runtime/collectives/nccl/wire_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace ronda {
namespace {

ReduceCall CallOf(const std::vector<Segment>& segments, DType dtype, WireFormat wire = WireFormat::kNone) {
  return {.segments = segments, .dtype = dtype, .wire = wire};
}

TEST(WirePlanTest, TensorsBeginWhereTheDeviceAccessesThemBest) {
  const std::vector<Segment> segments = {{.count = 3}, {.count = 0}, {.count = 4}, {.count = 1}};
  WirePlan plan;
  plan.Lay(CallOf(segments, DType::kFloat32), /*vote_elements=*/0);
  EXPECT_EQ(plan.OffsetOf(0), 0u);
  EXPECT_EQ(plan.OffsetOf(1), 16u);
  EXPECT_EQ(plan.OffsetOf(2), 16u);
  EXPECT_EQ(plan.OffsetOf(3), 32u);
  EXPECT_EQ(plan.bytes(), 48u);
}

TEST(WirePlanTest, VotesLieInFront) {
  const std::vector<Segment> segments = {{.count = 100}};
  WirePlan plan;
  plan.Lay(CallOf(segments, DType::kUint8), /*vote_elements=*/17);
  EXPECT_EQ(plan.OffsetOf(0), 32u);
  EXPECT_EQ(plan.bytes(), 32u + 112u);
}

// A block is 260 bytes: four of them are the least that is a multiple of 16.
TEST(WirePlanTest, BlocksBeginAtMultiplesOfBlocks) {
  const std::vector<Segment> segments = {{.count = 1}, {.count = 257}};
  WirePlan plan;
  plan.Lay(CallOf(segments, DType::kFloat32, WireFormat::kFp8E4M3), /*vote_elements=*/0);
  EXPECT_EQ(plan.unit(), 1040u);
  EXPECT_EQ(plan.OffsetOf(1), 1040u);
  EXPECT_EQ(plan.bytes(), 2080u);
  EXPECT_EQ(plan.wire().blocks, kernels::cuda::Wire::Blocks::kE4M3);
}

TEST(WirePlanTest, ShardsCoverTheBufferAndBeginAtUnits) {
  for (WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kFp8E5M2}) {
    for (size_t count : {size_t{1}, size_t{5}, size_t{1000}, size_t{100'003}}) {
      const std::vector<Segment> segments = {{.count = count}, {.count = 7}};
      WirePlan plan;
      plan.Lay(CallOf(segments, DType::kFloat32, wire), /*vote_elements=*/0);
      for (int n : {1, 2, 3, 8, 1000}) {
        size_t covered = 0;
        for (int i = 0; i < n; ++i) {
          const WirePlan::Range shard = plan.Shard(i, n);
          EXPECT_EQ(shard.begin, covered);
          EXPECT_EQ(shard.begin % plan.unit(), 0u);
          EXPECT_EQ(shard.bytes % plan.layout().granule_bytes, 0u);
          EXPECT_LE(shard.bytes, plan.ShardBytes(n));
          covered += shard.bytes;
        }
        EXPECT_EQ(covered, plan.bytes()) << n << " shards of " << plan.bytes();
      }
    }
  }
}

TEST(WirePlanTest, NcclReducesWhatItReducesWell) {
  const auto is_native = [](DType dtype, WireFormat wire, ReduceOp op) {
    return NcclOpOf(LayoutOf(dtype, wire), op, SumOrder::kOfNccl).has_value();
  };
  EXPECT_TRUE(is_native(DType::kFloat32, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_TRUE(is_native(DType::kFloat64, WireFormat::kNone, ReduceOp::kProduct));
  EXPECT_TRUE(is_native(DType::kInt8, WireFormat::kFp8E4M3, ReduceOp::kMin)) << "integers travel as they are";
  EXPECT_TRUE(is_native(DType::kFloat16, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_TRUE(is_native(DType::kBfloat16, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_TRUE(is_native(DType::kFloat32, WireFormat::kFloat16, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kFloat16, WireFormat::kNone, ReduceOp::kProduct)) << "rounded after every factor";
  EXPECT_FALSE(is_native(DType::kFloat32, WireFormat::kFp8E4M3, ReduceOp::kSum));
  // NaN.
  EXPECT_FALSE(is_native(DType::kFloat32, WireFormat::kNone, ReduceOp::kMax));
  // No such type or operator.
  EXPECT_FALSE(is_native(DType::kBool, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kUint16, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kInt32, WireFormat::kNone, ReduceOp::kBitXor));
}

TEST(WirePlanTest, NothingThatRoundsIsLeftToNcclWhereTheOrderIsThatOfTheRanks) {
  const auto is_native = [](DType dtype, WireFormat wire, ReduceOp op) {
    return NcclOpOf(LayoutOf(dtype, wire), op, SumOrder::kOfRanks).has_value();
  };
  EXPECT_FALSE(is_native(DType::kFloat16, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kFloat32, WireFormat::kBfloat16, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kFloat32, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kFloat64, WireFormat::kNone, ReduceOp::kProduct));
  EXPECT_TRUE(is_native(DType::kInt64, WireFormat::kNone, ReduceOp::kSum));
}

TEST(WirePlanTest, SumsOf16BitNumbersAreScaledBefore) {
  const ReduceCall call = {.prescale = {.multiplier = 2}, .postscale = {.multiplier = 3, .divisor = 4}};
  const WireFactors narrow = FactorsOf(LayoutOf(DType::kFloat32, WireFormat::kFloat16), call);
  EXPECT_EQ(narrow.before.Factor(), 1.5);
  EXPECT_TRUE(narrow.after.IsIdentity());
  const WireFactors wide = FactorsOf(LayoutOf(DType::kFloat32, WireFormat::kNone), call);
  EXPECT_EQ(wide.before.Factor(), 2);
  EXPECT_EQ(wide.after.Factor(), 0.75);
}

}  // namespace
}  // namespace ronda
