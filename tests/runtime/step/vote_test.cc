// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/vote.h"

#include <gtest/gtest.h>

#include <vector>

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

constexpr auto kNever = [] {};

// Returns the result of a vote in which the ranks have these flags, and the last rank votes `last`.
Ballot Decided(const std::vector<Flags>& ranks, Ballot::Vote last) {
  uint8_t words = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    Ballot own = {.own_flags = ranks[rank], .when_late = kNever};
    if (rank + 1 == ranks.size()) own.own = last;
    EXPECT_LT(own.word(), 1 << Ballot::kWordBits);
    words |= own.word();
  }
  Ballot ballot = {.when_late = kNever};
  ballot.Decide(words);
  return ballot;
}

TEST(Vote, CarriesAFlagThatAllRanksHaveSubmitted) {
  for (int flag = 0; flag < kFlagCount; ++flag) {
    const auto bit = static_cast<uint8_t>(1 << flag);
    const Flags absent = {}, lowered = {.submitted = bit}, raised = {.submitted = bit, .raised = bit};
    EXPECT_EQ(Decided({lowered, lowered}, Ballot::Vote::kApprove).flags, lowered);
    EXPECT_EQ(Decided({lowered, raised}, Ballot::Vote::kApprove).flags, raised);
    EXPECT_EQ(Decided({raised, lowered}, Ballot::Vote::kApprove).flags, raised);
    EXPECT_EQ(Decided({raised, absent}, Ballot::Vote::kApprove).flags, absent) << "it travels with the next vote";
    EXPECT_EQ(Decided({absent, absent}, Ballot::Vote::kApprove).flags, absent);
  }
}

TEST(Vote, CarriesNoFlagIfARankVetoes) {
  const Flags all = {.submitted = (1 << kFlagCount) - 1, .raised = (1 << kFlagCount) - 1};
  EXPECT_EQ(Decided({all, all}, Ballot::Vote::kApprove).flags, all);
  const Ballot vetoed = Decided({all, all}, Ballot::Vote::kVeto);
  EXPECT_EQ(vetoed.result, Ballot::Result::kVetoed);
  EXPECT_EQ(vetoed.flags, Flags());
}

TEST(Vote, FindsThatTheTensorsOfAllRanksAreAdjacent) {
  constexpr BucketLayout kAny = BucketLayout::kAny, kMoved = BucketLayout::kMoved, kAdjacent = BucketLayout::kAdjacent;
  const auto decided = [](const std::vector<BucketLayout>& ranks, Ballot::Vote last) {
    uint8_t words = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      Ballot own = {.own_flags = {.submitted = 1, .raised = 1}, .own_layout = ranks[rank], .when_late = kNever};
      if (rank + 1 == ranks.size()) own.own = last;
      words |= own.word();
    }
    Ballot ballot = {.when_late = kNever};
    ballot.Decide(words);
    return ballot.layout;
  };
  EXPECT_EQ(decided({kAdjacent, kAdjacent}, Ballot::Vote::kApprove), kAdjacent);
  EXPECT_EQ(decided({kAdjacent, kAny}, Ballot::Vote::kApprove), kAny);
  EXPECT_EQ(decided({kAny, kAdjacent}, Ballot::Vote::kApprove), kAny);
  EXPECT_EQ(decided({kAdjacent, kMoved}, Ballot::Vote::kApprove), kMoved);
  EXPECT_EQ(decided({kMoved, kMoved}, Ballot::Vote::kApprove), kMoved);
  EXPECT_EQ(decided({kMoved, kAny}, Ballot::Vote::kApprove), kAny);
  EXPECT_EQ(decided({kAdjacent, kAdjacent}, Ballot::Vote::kVeto), kAny);
}

TEST(Flags, AreFoundByTheirNames) {
  EXPECT_EQ(FlagOf(kStopFlag), 0);
  EXPECT_EQ(FlagOf(kChangeFlag), 1);
  EXPECT_EQ(FlagOf("should_stop"), std::nullopt);
  EXPECT_EQ(FlagOf("ronda/elastic_sync"), std::nullopt);
}

}  // namespace
}  // namespace ronda
