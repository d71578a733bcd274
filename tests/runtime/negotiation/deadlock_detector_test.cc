// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/deadlock_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/negotiation/negotiator.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Program = RankReport::Program;

class DeadlockDetectorTest : public ::testing::Test {
 protected:
  void Submit(RankId rank, const TensorRequest& request) {
    Report(rank, {.requests = {request}, .identity = "host h, pid " + std::to_string(100 + rank)});
  }
  void Submit(RankId rank, const std::string& name) { Submit(rank, TensorRequest{.name = name, .shape = {3}}); }

  std::string Wait(RankId rank) {
    Report(rank, {.program = Program::kWaits});
    return detector_.Inspect(negotiator_.waiting());
  }

  std::string SubmitAndWait(RankId rank, const std::string& name) {
    Submit(rank, name);
    return Wait(rank);
  }

  void Decide() {
    if (!negotiator_.TakeResponses().empty()) detector_.RecordDecisions();
  }

  Negotiator negotiator_{{.world_size = 3}};
  DeadlockDetector detector_{3};

 private:
  void Report(RankId rank, const RankReport& report) {
    ASSERT_TRUE(negotiator_.Add(rank, report, absl::UnixEpoch()).ok());
    detector_.Record(rank, report.program);
  }
};

TEST_F(DeadlockDetectorTest, RanksThatWaitForEachOtherAreNamedWithTheirTensors) {
  EXPECT_THAT(SubmitAndWait(0, "a"), IsEmpty());
  EXPECT_THAT(SubmitAndWait(2, "a"), IsEmpty());
  EXPECT_THAT(SubmitAndWait(1, "b"),
              StartsWith("deadlock of rank 0 (host h, pid 100), rank 1 (host h, pid 101), rank 2 (host h, pid 102), "
                         "which wait for each other: tensor 'a' (allreduce of float32 [3]): submitted by ranks 0, 2, "
                         "not by rank 1; tensor 'b' (allreduce of float32 [3]): submitted by rank 1, not by ranks 0, "
                         "2."));
}

TEST_F(DeadlockDetectorTest, ADeadlockIsReportedOnce) {
  SubmitAndWait(0, "a");
  EXPECT_THAT(SubmitAndWait(1, "b"), Not(IsEmpty()));
  EXPECT_THAT(SubmitAndWait(2, "b"), IsEmpty());
  EXPECT_THAT(Wait(2), IsEmpty());
}

TEST_F(DeadlockDetectorTest, TwoRanksNeedNoThird) {
  SubmitAndWait(0, "a");
  EXPECT_THAT(SubmitAndWait(1, "b"),
              StartsWith("deadlock of rank 0 (host h, pid 100), rank 1 (host h, pid 101), which"));
}

TEST_F(DeadlockDetectorTest, AnotherDeadlockIsReportedAfterIt) {
  SubmitAndWait(0, "a");
  EXPECT_THAT(SubmitAndWait(1, "b"), Not(IsEmpty()));
  for (const char* name : {"a", "b"}) negotiator_.Fail({0, name}, absl::DeadlineExceededError("late"));
  Decide();
  SubmitAndWait(0, "c");
  EXPECT_THAT(SubmitAndWait(1, "d"), HasSubstr("tensor 'c'"));
}

TEST_F(DeadlockDetectorTest, ARankThatComputesMaySubmitTheRest) {
  SubmitAndWait(0, "a");
  SubmitAndWait(2, "a");
  Submit(1, "b");
  EXPECT_THAT(Wait(0), IsEmpty());
}

TEST_F(DeadlockDetectorTest, ARankThatHasSubmittedNothingIsNotStuck) {
  SubmitAndWait(0, "a");
  SubmitAndWait(2, "a");
  EXPECT_THAT(Wait(1), IsEmpty());
}

TEST_F(DeadlockDetectorTest, ASubmissionSaysThatTheProgramRuns) {
  SubmitAndWait(0, "a");
  Submit(1, "b");
  Submit(0, "c");
  EXPECT_THAT(Wait(1), IsEmpty());
}

TEST_F(DeadlockDetectorTest, RanksThatHaveBeenAnsweredMayGoOn) {
  for (RankId rank : {0, 1, 2}) Submit(rank, "x");
  SubmitAndWait(0, "a");
  SubmitAndWait(1, "b");
  Decide();
  EXPECT_THAT(Wait(1), IsEmpty());
  EXPECT_THAT(Wait(0), Not(IsEmpty()));
}

TEST_F(DeadlockDetectorTest, OneOperationThatMayYetBeginFreesItsRanks) {
  SubmitAndWait(0, "a");
  SubmitAndWait(1, "b");
  // Rank 2 computes, and may still submit "c".
  Submit(0, "c");
  Submit(1, "c");
  Wait(0);
  EXPECT_THAT(Wait(1), IsEmpty());
}

TEST_F(DeadlockDetectorTest, ACircleOfThreeIsFound) {
  for (RankId rank : {0, 1}) Submit(rank, "a");
  for (RankId rank : {1, 2}) Submit(rank, "b");
  for (RankId rank : {2, 0}) Submit(rank, "c");
  EXPECT_THAT(Wait(0), IsEmpty());
  EXPECT_THAT(Wait(1), IsEmpty());
  EXPECT_THAT(Wait(2), HasSubstr("tensor 'c' (allreduce of float32 [3]): submitted by ranks 0, 2, not by rank 1"));
}

TEST_F(DeadlockDetectorTest, AJoinedRankLacksNothing) {
  Submit(0, {.name = std::string(kJoinName), .op = OpType::kJoin});
  SubmitAndWait(1, "a");
  EXPECT_THAT(Wait(0), IsEmpty());
  const std::string text = SubmitAndWait(2, "b");
  EXPECT_THAT(text, HasSubstr("tensor 'a' (allreduce of float32 [3]): submitted by rank 1, not by rank 2"));
}

TEST_F(DeadlockDetectorTest, ARankThatWaitsForItsOwnRestOfAGroupIsFound) {
  for (RankId rank : {0, 1, 2}) Submit(rank, {.name = "a", .shape = {3}, .group = "g", .group_size = 2});
  EXPECT_THAT(Wait(1), StartsWith("deadlock of rank 1 (host h, pid 101), which waits for itself: group 'g', of which "
                                  "1 of 2 tensors are ready, lacks the rest."));
}

TEST_F(DeadlockDetectorTest, LongListsAreCut) {
  for (int i = 0; i < 6; ++i) Submit(0, "a" + std::to_string(i));
  Wait(0);
  const std::string text = SubmitAndWait(1, "b");
  EXPECT_THAT(text, HasSubstr("tensor 'a3'"));
  EXPECT_THAT(text, HasSubstr("; 3 more."));
}

}  // namespace
}  // namespace ronda
