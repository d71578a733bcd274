#include "client/session.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "runtime/engine/callback_thread.h"

namespace ronda {
namespace {

// Gives the next number to `operation`.
void Begin(NumberSequence& sequence, const std::shared_ptr<Handle>& operation) {
  sequence.Next();
  sequence.Take(operation);
}

std::shared_ptr<Handle> Operation() {
  return std::make_shared<Handle>(CallbackThread::Create({}), nullptr, std::make_shared<const std::string>("t"));
}

TEST(NumberSequenceTest, CountsWhatIsTaken) {
  NumberSequence sequence;
  EXPECT_EQ(sequence.Next(), 0u);
  EXPECT_EQ(sequence.Next(), 0u) << "not taken: its submission failed";
  Begin(sequence, Operation());
  EXPECT_EQ(sequence.Next(), 1u);
}

TEST(NumberSequenceTest, WhatNobodyCameToIsHeldAgain) {
  NumberSequence sequence;
  const auto first = Operation(), second = Operation();
  Begin(sequence, first);
  Begin(sequence, second);
  first->Complete(absl::DeadlineExceededError("rank 1 is missing"));
  EXPECT_EQ(sequence.Next(), 0u);
  Begin(sequence, Operation());
  EXPECT_EQ(sequence.Next(), 2u);
}

TEST(NumberSequenceTest, TheSmallestNumberComesFirst) {
  NumberSequence sequence;
  const auto first = Operation(), second = Operation();
  Begin(sequence, first);
  Begin(sequence, second);
  second->Complete(absl::DeadlineExceededError("rank 1 is missing"));
  first->Complete(absl::DeadlineExceededError("rank 1 is missing"));
  EXPECT_EQ(sequence.Next(), 0u);
  Begin(sequence, Operation());
  EXPECT_EQ(sequence.Next(), 1u);
}

TEST(NumberSequenceTest, OtherEndsUseANumberUp) {
  NumberSequence sequence;
  const auto good = Operation(), mismatch = Operation();
  Begin(sequence, good);
  Begin(sequence, mismatch);
  good->Complete(absl::OkStatus());
  // All ranks came, and all have this error.
  mismatch->Complete(absl::FailedPreconditionError("ranks disagree"));
  EXPECT_EQ(sequence.Next(), 2u);
}

}  // namespace
}  // namespace ronda
