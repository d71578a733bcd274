// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/vote.h"

#include <gtest/gtest.h>

namespace ronda {
namespace {

TEST(Vote, GoesWithTheDataOfReductionsInTheHostsMemory) {
  for (const OpType op : {OpType::kAllreduce, OpType::kReduce, OpType::kReduceScatter}) {
    EXPECT_TRUE(VoteGoesWithData({.op = op})) << Name(op);
  }
  EXPECT_TRUE(VoteGoesWithData({.dtype = DType::kFloat16, .wire = WireFormat::kFloat16})) << "nothing is rounded";
}

TEST(Vote, GoesAheadOfWhatARankCouldNotTakeBack) {
  for (const OpType op : {OpType::kBroadcast, OpType::kAllgather, OpType::kAlltoall, OpType::kBarrier}) {
    EXPECT_FALSE(VoteGoesWithData({.op = op})) << Name(op);
  }
  EXPECT_FALSE(VoteGoesWithData({.memory = Memory::kCuda}));
  EXPECT_FALSE(VoteGoesWithData({.reduction = Reduction::kAdasum}));
  EXPECT_FALSE(VoteGoesWithData({.wire = WireFormat::kFloat16})) << "rounding changes the residual";
}

}  // namespace
}  // namespace ronda
