#include "client/number_sequence.h"

#include <memory>

#include "gtest/gtest.h"

namespace ronda {
namespace {

std::shared_ptr<Handle> Operation() { return std::make_shared<Handle>(nullptr); }

TEST(NumberSequenceTest, CountsWhatIsTaken) {
  NumberSequence sequence;
  EXPECT_EQ(sequence.Next(), 0u);
  EXPECT_EQ(sequence.Next(), 0u) << "not taken: its submission failed";
  sequence.Take(Operation());
  EXPECT_EQ(sequence.Next(), 1u);
}

TEST(NumberSequenceTest, WhatNobodyCameToIsHeldAgain) {
  NumberSequence sequence;
  const auto first = Operation(), second = Operation();
  sequence.Take(first);
  sequence.Take(second);
  first->Complete("first", absl::DeadlineExceededError("rank 1 is missing"));
  EXPECT_EQ(sequence.Next(), 0u);
  sequence.Take(Operation());
  EXPECT_EQ(sequence.Next(), 2u);
}

TEST(NumberSequenceTest, TheSmallestNumberComesFirst) {
  NumberSequence sequence;
  const auto first = Operation(), second = Operation();
  sequence.Take(first);
  sequence.Take(second);
  second->Complete("second", absl::DeadlineExceededError("rank 1 is missing"));
  first->Complete("first", absl::DeadlineExceededError("rank 1 is missing"));
  EXPECT_EQ(sequence.Next(), 0u);
  sequence.Take(Operation());
  EXPECT_EQ(sequence.Next(), 1u);
}

TEST(NumberSequenceTest, OtherEndsUseANumberUp) {
  NumberSequence sequence;
  const auto good = Operation(), mismatch = Operation();
  sequence.Take(good);
  sequence.Take(mismatch);
  good->Complete("good", absl::OkStatus());
  // All ranks came, and all have this error.
  mismatch->Complete("mismatch", absl::FailedPreconditionError("ranks disagree"));
  EXPECT_EQ(sequence.Next(), 2u);
}

}  // namespace
}  // namespace ronda
