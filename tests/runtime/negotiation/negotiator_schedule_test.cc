// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/step/flags.h"
#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two ranks with a step of "a" and "b", which have the ids 1 and 2. Three identical steps begin a schedule.
class NegotiatorScheduleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (RankId rank : {0, 1}) Receive(rank, Report({Allreduce("a"), Allreduce("b")}));
    negotiator_.TakeResponses();
  }

  void Receive(RankId rank, RankReport report) {
    report.schedule = begun_;
    const absl::Status status = negotiator_.Add(rank, report, now_);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Gives the negotiator a report from the time of the previous schedule.
  void ReceiveStale(RankId rank, RankReport report) {
    report.schedule = begun_ - 1;
    const absl::Status status = negotiator_.Add(rank, report, now_);
    ASSERT_TRUE(status.ok()) << status;
  }

  ResponseList Step(const std::vector<CacheId>& ids = {1, 2}) {
    now_ += absl::Milliseconds(1);
    for (RankId rank : {0, 1}) Receive(rank, {.cached = ids});
    ResponseList list = negotiator_.TakeResponses();
    if (list.schedule) begun_ = list.schedule->number;
    return list;
  }

  void Lock() {
    for (int step = 0; step < 2; ++step) EXPECT_FALSE(Step().schedule);
    EXPECT_TRUE(Step().schedule);
    ASSERT_TRUE(negotiator_.locked());
  }

  absl::Time now_ = kStart;
  uint64_t begun_ = 0;
  Negotiator negotiator_{{.world_size = 2, .cache_capacity = 4, .schedule = {.identical_steps = 3}}};
};

TEST_F(NegotiatorScheduleTest, BeginsWithTheListThatEndsTheLastOfEnoughIdenticalSteps) {
  EXPECT_FALSE(Step().schedule);
  EXPECT_FALSE(Step().schedule);
  const ResponseList list = Step();
  EXPECT_THAT(list.buckets, SizeIs(1));
  ASSERT_TRUE(list.schedule);
  EXPECT_EQ(list.schedule->number, 1u);
  EXPECT_THAT(list.schedule->buckets, ElementsAre(ElementsAre(1, 2)));
  EXPECT_TRUE(negotiator_.locked());
  EXPECT_FALSE(negotiator_.anything_waits());
}

TEST_F(NegotiatorScheduleTest, ThereAreNoneUnlessAskedFor) {
  NegotiatorDriver driver(1);
  driver.Submit(0, {Allreduce("a")});
  driver.Responses();
  for (int step = 0; step < 10; ++step) {
    driver.Receive(0, ReportById(1));
    EXPECT_FALSE(driver.Responses().schedule);
  }
}

TEST_F(NegotiatorScheduleTest, TensorsThatWaitForEachOtherGetBucketsOfTheirOwn) {
  ResponseList last;
  for (int step = 0; step < 3; ++step) {
    EXPECT_FALSE(last.schedule);
    EXPECT_FALSE(Step({1}).schedule);
    last = Step({2});
  }
  ASSERT_TRUE(last.schedule);
  EXPECT_THAT(last.schedule->buckets, ElementsAre(ElementsAre(1), ElementsAre(2)));
}

TEST_F(NegotiatorScheduleTest, TensorsThatHaveNotWaitedShareABucketWhateverListsTheyWereIn) {
  ResponseList last;
  for (int step = 0; step < 3; ++step) {
    EXPECT_FALSE(last.schedule);
    EXPECT_FALSE(Step({1}).schedule);
    for (RankId rank : {0, 1}) Receive(rank, {.cached = {2}, .waited = RankReport::Waited::kNo});
    last = negotiator_.TakeResponses();
  }
  ASSERT_TRUE(last.schedule);
  EXPECT_THAT(last.schedule->buckets, ElementsAre(ElementsAre(1, 2)));
}

TEST_F(NegotiatorScheduleTest, OneRankThatMayHaveWaitedIsEnoughToKeepTensorsApart) {
  ResponseList last;
  for (int step = 0; step < 3; ++step) {
    EXPECT_FALSE(Step({1}).schedule);
    Receive(0, {.cached = {2}, .waited = RankReport::Waited::kNo});
    Receive(1, {.cached = {2}});
    last = negotiator_.TakeResponses();
  }
  ASSERT_TRUE(last.schedule);
  EXPECT_THAT(last.schedule->buckets, ElementsAre(ElementsAre(1), ElementsAre(2)));
}

TEST_F(NegotiatorScheduleTest, EarlySubmissionsAreAPartOfTheNextStep) {
  Step();
  Step();
  for (RankId rank : {0, 1}) Receive(rank, {.cached = {1, 2}});
  ASSERT_TRUE(negotiator_.TakeResponses().schedule);
  negotiator_.Unlock({.rounds = 0});
  begun_ = 1;
  Step();
  Step();
  Receive(0, {.cached = {1, 2}});
  Receive(1, {.cached = {2}});
  EXPECT_FALSE(negotiator_.TakeResponses().schedule);
  Receive(0, {.cached = {2}});  // rank 0's report of the next step, right after the list
  Receive(1, {.cached = {1}});
  EXPECT_TRUE(negotiator_.TakeResponses().schedule);
  EXPECT_FALSE(negotiator_.anything_waits());
  EXPECT_THAT(negotiator_.waiting().SubmittedBy(0, 9), IsEmpty());
}

TEST_F(NegotiatorScheduleTest, DoesNotBeginWhileAnythingElseWaits) {
  Receive(0, Report({Allreduce("c")}));
  for (int step = 0; step < 4; ++step) EXPECT_FALSE(Step().schedule);
  Receive(1, Report({Allreduce("c")}));
  EXPECT_FALSE(negotiator_.TakeResponses().schedule);
  Lock();
}

// The program's step is "a" and "b", even if the program also submits flags.
TEST_F(NegotiatorScheduleTest, FlagsAreNoPartOfAStep) {
  const auto ask = [&] {
    for (RankId rank : {0, 1}) Receive(rank, Report({Allreduce(std::string(kStopFlag))}));
    const ResponseList list = negotiator_.TakeResponses();
    EXPECT_THAT(list.buckets, SizeIs(1));
    return list.schedule.has_value();
  };
  EXPECT_FALSE(ask());
  EXPECT_FALSE(Step().schedule);
  EXPECT_FALSE(ask() || ask());
  EXPECT_FALSE(Step().schedule);
  Receive(0, Report({Allreduce(std::string(kChangeFlag))}));  // rank 1 has not called the function yet
  const ResponseList list = Step();
  ASSERT_TRUE(list.schedule);
  EXPECT_THAT(list.schedule->buckets, ElementsAre(ElementsAre(1, 2)));
}

TEST_F(NegotiatorScheduleTest, DoesNotBeginWhileARankHasJoinedOrLeft) {
  Receive(0, Report({JoinOf()}));
  for (int step = 0; step < 4; ++step) {
    Receive(1, {.cached = {1, 2}});
    const ResponseList list = negotiator_.TakeResponses();
    EXPECT_FALSE(list.buckets.empty());
    EXPECT_FALSE(list.schedule);
  }
  Receive(1, Report({JoinOf()}));
  EXPECT_FALSE(negotiator_.TakeResponses().schedule);
  Step();
  Step();
  Receive(0, {.cached = {1, 2}, .presence = RankReport::Presence::kShuttingDown});
  Receive(1, {.cached = {1, 2}});
  EXPECT_FALSE(negotiator_.TakeResponses().schedule);
}

TEST_F(NegotiatorScheduleTest, ErrorsBreakTheRunOfIdenticalSteps) {
  Step();
  Step();
  Receive(0, Report({Allreduce("c")}));
  Receive(1, Report({Allreduce("c", {9})}));
  const ResponseList list = Step();
  EXPECT_THAT(list.errors, SizeIs(1));
  EXPECT_FALSE(list.schedule);
  Lock();
}

TEST_F(NegotiatorScheduleTest, SmallerProcessSetsAndMessagesAreNotScheduled) {
  const TensorRequest send = {.name = "s", .op = OpType::kSendRecv, .root = 0, .receiver = 1};
  TensorRequest on_set = OnSet(1, Allreduce("x"));
  for (RankId rank : {0, 1}) Receive(rank, Report({AddSet({0, 1})}));
  negotiator_.TakeResponses();
  for (const TensorRequest& request : {send, on_set}) {
    for (RankId rank : {0, 1}) Receive(rank, Report({request}));
    const ResponseList first = negotiator_.TakeResponses();
    ASSERT_THAT(first.buckets, SizeIs(1));
    const CacheId id = request.name == "s" ? 3 : 4;
    for (int step = 0; step < 4; ++step) {
      const ResponseList list = Step({id});
      ASSERT_EQ(IdOf(list, 0), id);
      EXPECT_FALSE(list.schedule);
    }
  }
}

TEST_F(NegotiatorScheduleTest, GroupRunsInOneBucketOrTheStepIsNotScheduled) {
  const TensorRequest one = InGroup("g", 2, Allreduce("g1")), two = InGroup("g", 2, Allreduce("g2"));
  TensorRequest half = two;
  half.dtype = DType::kFloat16;
  for (RankId rank : {0, 1}) Receive(rank, Report({one, half}));
  negotiator_.TakeResponses();
  for (int step = 0; step < 7; ++step) EXPECT_FALSE(Step({3, 4}).schedule);
  for (RankId rank : {0, 1}) Receive(rank, {.cached = {3}, .requests = {two}});
  negotiator_.TakeResponses();
  Step({3, 5});
  Step({3, 5});
  const ResponseList list = Step({3, 5});
  ASSERT_TRUE(list.schedule);
  EXPECT_THAT(list.schedule->buckets, ElementsAre(ElementsAre(3, 5)));
}

TEST_F(NegotiatorScheduleTest, ReportsFromBeforeTheScheduleCountForNothing) {
  Lock();
  ReceiveStale(0, {.cached = {1}, .requests = {Allreduce("c")}});
  ReceiveStale(1, ShuttingDown());
  EXPECT_FALSE(negotiator_.anything_waits());
  EXPECT_TRUE(negotiator_.TakeResponses().empty());
  negotiator_.Unlock({.rounds = 1});
  ReceiveStale(0, {.cached = {1}});
  EXPECT_FALSE(negotiator_.anything_waits());
  for (RankId rank : {0, 1}) Receive(rank, {.cached = {1}});
  EXPECT_THAT(negotiator_.TakeResponses().buckets, SizeIs(1)) << "rank 1 has not left";
}

TEST_F(NegotiatorScheduleTest, IdentityOfARankCountsInAStaleReport) {
  Lock();
  ReceiveStale(1, {.identity = "host h, pid 7"});
  EXPECT_THAT(negotiator_.Describe(1), HasSubstr("host h, pid 7"));
}

TEST_F(NegotiatorScheduleTest, ReportWhileTheScheduleIsLockedIsRefused) {
  Lock();
  const absl::Status early = negotiator_.Add(1, {.schedule = 1}, now_);
  EXPECT_EQ(early.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(early.message()), HasSubstr("rank 1 reports after schedule 1"));
  negotiator_.Unlock({.rounds = 1});
  const absl::Status later = negotiator_.Add(1, {.schedule = 2}, now_);
  EXPECT_EQ(later.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NegotiatorScheduleTest, NegotiationGoesOnWhereItWasAfterTheSchedule) {
  Lock();
  negotiator_.Unlock({.rounds = 0});
  EXPECT_FALSE(negotiator_.locked());
  for (RankId rank : {0, 1}) Receive(rank, {.cached = {2}, .requests = {Allreduce("c")}});
  const ResponseList list = negotiator_.TakeResponses();
  EXPECT_THAT(list.buckets, SizeIs(1));
  EXPECT_FALSE(list.schedule);
  for (int step = 0; step < 2; ++step) EXPECT_FALSE(Step({1, 2, 3}).schedule);
  const ResponseList next = Step({1, 2, 3});
  ASSERT_TRUE(next.schedule);
  EXPECT_EQ(next.schedule->number, 2u);
}

TEST_F(NegotiatorScheduleTest, ScheduleThatLastedBeginsAgainAfterOneStep) {
  Lock();
  negotiator_.Unlock({.rounds = 3});
  const ResponseList list = Step();
  ASSERT_TRUE(list.schedule);
  EXPECT_EQ(list.schedule->number, 2u);
  EXPECT_THAT(list.schedule->buckets, ElementsAre(ElementsAre(1, 2)));
}

TEST_F(NegotiatorScheduleTest, ScheduleThatDidNotLastIsToBeFoundAgain) {
  Lock();
  negotiator_.Unlock({.rounds = 2});
  Lock();
}

TEST_F(NegotiatorScheduleTest, ScheduleThatLastedBeginsAgainWithTheListOfAnotherTensor) {
  Lock();
  negotiator_.Unlock({.rounds = 3});
  for (RankId rank : {0, 1}) Receive(rank, Report({Allreduce("metric")}));
  const ResponseList list = negotiator_.TakeResponses();
  EXPECT_THAT(list.buckets, SizeIs(1));
  ASSERT_TRUE(list.schedule);
  EXPECT_THAT(list.schedule->buckets, ElementsAre(ElementsAre(1, 2)));
}

TEST_F(NegotiatorScheduleTest, DoesNotBeginAgainWhileAnotherTensorWaits) {
  Lock();
  negotiator_.Unlock({.rounds = 3});
  for (RankId rank : {0, 1}) Receive(rank, Report({Allreduce("metric")}));
  Receive(0, Report({Allreduce("other")}));
  EXPECT_FALSE(negotiator_.TakeResponses().schedule);
  EXPECT_FALSE(Step().schedule);
  Receive(1, Report({Allreduce("other")}));
  EXPECT_TRUE(negotiator_.TakeResponses().schedule);
}

TEST_F(NegotiatorScheduleTest, ScheduleThatDidNotFitIsToBeFoundAgainInTwiceAsManySteps) {
  Lock();
  negotiator_.Unlock({.rounds = 2});
  Receive(0, {.last_schedule = RankReport::LastSchedule::kDidNotFit});
  for (int step = 0; step < 5; ++step) EXPECT_FALSE(Step().schedule);
  EXPECT_TRUE(Step().schedule);
  negotiator_.Unlock({.rounds = 6});
  EXPECT_TRUE(Step().schedule) << "it lasted this time";
}

TEST_F(NegotiatorScheduleTest, ScheduleWithAnEvictedTensorIsForgotten) {
  Lock();
  negotiator_.Unlock({.rounds = 3});
  for (RankId rank : {0, 1}) Receive(rank, Report({Allreduce("c"), Allreduce("d"), Allreduce("e")}));
  EXPECT_FALSE(negotiator_.TakeResponses().schedule) << "1 was evicted";
}

TEST_F(NegotiatorScheduleTest, SizesOfBucketsCanChange) {
  negotiator_.SetBucketSizes({.threshold = 0, .min_bucket_bytes = 0});
  EXPECT_THAT(Step().buckets, SizeIs(2));
  Step();
  const ResponseList list = Step();
  ASSERT_TRUE(list.schedule);
  EXPECT_THAT(list.schedule->buckets, ElementsAre(ElementsAre(1), ElementsAre(2)));
  negotiator_.Unlock({.rounds = 9});
  negotiator_.SetBucketSizes({.threshold = 1000, .min_bucket_bytes = 0});
  EXPECT_THAT(Step().buckets, SizeIs(1));
}

// A rank that has used an id after its eviction must repeat the request.
TEST_F(NegotiatorScheduleTest, DoesNotBeginWhileARankIsToRepeatARequest) {
  for (RankId rank : {0, 1}) Receive(rank, Report({Allreduce("c"), Allreduce("d"), Allreduce("e")}));
  negotiator_.TakeResponses();  // evicts "a", whose id was 1
  Receive(0, ReportById(1));
  for (int step = 0; step < 4; ++step) EXPECT_FALSE(Step({2, 3}).schedule);
  Receive(0, {.repeated = {{1, Allreduce("a")}}});
  Receive(1, Report({Allreduce("a")}));
  EXPECT_THAT(negotiator_.TakeResponses().buckets, SizeIs(1));
}

TEST_F(NegotiatorScheduleTest, LeavingWhatIsNotLockedIsABug) {
  EXPECT_DEATH(negotiator_.Unlock({.rounds = 0}), "locked_");
}

TEST_F(NegotiatorScheduleTest, DeadlinesCountFromTheSubmissionAlsoIfThatWaitedInASchedule) {
  Lock();
  negotiator_.Unlock({.rounds = 1});
  Receive(0, {.cached = {1}, .age = absl::Seconds(50)});
  EXPECT_THAT(negotiator_.waiting().Overdue(now_ + absl::Seconds(9)), IsEmpty());
  EXPECT_THAT(negotiator_.waiting().Overdue(now_ + absl::Seconds(10)), SizeIs(1))
      << "the warning is due after a minute";
}

TEST_F(NegotiatorScheduleTest, OldestSubmissionCountsWhoeverReportsFirst) {
  Lock();
  negotiator_.Unlock({.rounds = 1});
  Receive(0, {.cached = {1}});
  Receive(1, {.requests = {Allreduce("c")}, .age = absl::Seconds(50)});
  Receive(0, {.requests = {Allreduce("d")}, .age = absl::Seconds(20)});
  EXPECT_THAT(negotiator_.waiting().Overdue(now_ + absl::Seconds(10)), SizeIs(1));
  EXPECT_THAT(negotiator_.waiting().Overdue(now_ + absl::Seconds(40)), SizeIs(2));
}

}  // namespace
}  // namespace ronda
