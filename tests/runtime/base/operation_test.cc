// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/operation.h"

#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(OperationTest, APropertyThatNeedsAnotherComesWithIt) {
  for (const OperationTraits& traits : kOperations) {
    EXPECT_TRUE(!traits.fuses || traits.reduces) << traits.name;
    EXPECT_TRUE(!traits.changes_process_sets || traits.membership) << traits.name;
    EXPECT_TRUE(!traits.adds_process_set || traits.changes_process_sets) << traits.name;
    EXPECT_TRUE(!traits.by_new_members || traits.adds_process_set) << traits.name;
    EXPECT_TRUE(!traits.schedulable || traits.cached()) << traits.name << ": schedules name tensors by their cache ids";
    EXPECT_TRUE(traits.first_dimension == FirstDimension::kShared || traits.by_rows) << traits.name;
    const bool names_root = traits.input == Side::kRoot || traits.output == Side::kRoot || traits.splits == Side::kRoot;
    EXPECT_TRUE(!names_root || traits.has_root()) << traits.name;
  }
}

TEST(OperationTest, EveryReductionIsDefinedWhereItsKernelIs) {
  for (const ReductionTraits& traits : kReductions) {
    int dtypes = 0;
    for (int i = 0; i < kDTypeCount; ++i) {
      const DType dtype = *DTypeFromInt(i);
      if (!Supports(traits.op, dtype)) continue;
      EXPECT_TRUE(Supports(traits.kernel, dtype)) << traits.name << " of " << Name(dtype);
      ++dtypes;
    }
    EXPECT_EQ(dtypes < kDTypeCount, *traits.instead != '\0') << traits.name << ": the refusal says which to use";
  }
  EXPECT_FALSE(Supports(Reduction::kAverage, DType::kBool));
  EXPECT_FALSE(Supports(Reduction::kBitXor, DType::kFloat32));
  EXPECT_FALSE(Supports(Reduction::kAdasum, DType::kInt32));
}

TEST(OperationTest, OnlyWideFloatingPointTypesAreNarrowedTo16Bits) {
  EXPECT_FALSE(IsNarrowed(DType::kFloat32, WireFormat::kNone));
  EXPECT_TRUE(IsNarrowed(DType::kFloat64, WireFormat::kFloat16));
  EXPECT_FALSE(IsNarrowed(DType::kFloat16, WireFormat::kBfloat16)) << "travels as it is";
  EXPECT_TRUE(IsNarrowed(DType::kFloat16, WireFormat::kFp8E4M3));
  EXPECT_FALSE(IsNarrowed(DType::kInt32, WireFormat::kFp8E5M2));
  EXPECT_EQ(WireDType(DType::kFloat64, WireFormat::kBfloat16), DType::kBfloat16);
  EXPECT_EQ(WireDType(DType::kFloat16, WireFormat::kBfloat16), DType::kFloat16);
  EXPECT_EQ(WireDType(DType::kFloat32, WireFormat::kFp8E4M3), DType::kFloat32) << "blocks are made from it";
}

TEST(OperationTest, NumbersThatAreNoneOfTheValuesAreRefused) {
  EXPECT_EQ(OpTypeFromInt(13), OpType::kCreateProcessSet);
  EXPECT_EQ(OpTypeFromInt(kOpTypeCount), std::nullopt);
  EXPECT_EQ(ReductionFromInt(-1), std::nullopt);
  EXPECT_EQ(WireFormatFromInt(kWireFormatCount), std::nullopt);
}

}  // namespace
}  // namespace ronda
