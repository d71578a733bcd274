// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_arithmetic.h"

#include <gtest/gtest.h>

namespace ronda {
namespace {

TEST(NcclArithmeticTest, NcclReducesWhatItReducesWell) {
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
  // NCCL's maximum ignores NaN, but Ronda's maximum keeps it.
  EXPECT_FALSE(is_native(DType::kFloat32, WireFormat::kNone, ReduceOp::kMax));
  // NCCL lacks the dtypes bool and uint16, and the operation BitXor.
  EXPECT_FALSE(is_native(DType::kBool, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kUint16, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kInt32, WireFormat::kNone, ReduceOp::kBitXor));
}

TEST(NcclArithmeticTest, NcclAddsNoRoundedValuesIfTheRanksOrderCounts) {
  const auto is_native = [](DType dtype, WireFormat wire, ReduceOp op) {
    return NcclOpOf(LayoutOf(dtype, wire), op, SumOrder::kOfRanks).has_value();
  };
  EXPECT_FALSE(is_native(DType::kFloat16, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kFloat32, WireFormat::kBfloat16, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kFloat32, WireFormat::kNone, ReduceOp::kSum));
  EXPECT_FALSE(is_native(DType::kFloat64, WireFormat::kNone, ReduceOp::kProduct));
  EXPECT_TRUE(is_native(DType::kInt64, WireFormat::kNone, ReduceOp::kSum));
}

TEST(NcclArithmeticTest, SumsOf16BitNumbersAreScaledBefore) {
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
