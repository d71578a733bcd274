// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Absent = TensorRequest::Absent;

TEST(Join, TensorsGoOnWithoutTheRankThatJoined) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(2, {JoinOf()});
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(1));
  EXPECT_EQ(Spelled(list, 0).request.name, "a");
  EXPECT_THAT(list.buckets[0].joined, ElementsAre(2));
  EXPECT_EQ(list.buckets[0].absent, Absent::kNotCounted);
}

TEST(Join, JoiningConcludesWhatWaitedForTheRank) {
  NegotiatorDriver negotiator(3);
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  negotiator.SubmitAll({1, 0}, Allreduce("b"));
  TensorRequest join = JoinOf();
  join.absent = Absent::kCountedAsZeros;
  negotiator.Submit(2, {join});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(2));
  EXPECT_EQ(Spelled(list, 0).request.name, "a");
  EXPECT_EQ(Spelled(list, 1).request.name, "b");
  EXPECT_EQ(list.buckets[1].absent, Absent::kCountedAsZeros);
}

TEST(Join, RankThatSubmittedBeforeJoiningTakesPart) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(1, {Allreduce("a"), JoinOf()});
  negotiator.Submit(2, {JoinOf()});
  negotiator.Submit(0, {Allreduce("a")});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(1));
  EXPECT_THAT(list.buckets[0].joined, ElementsAre(2));
}

TEST(Join, LastRankToJoinIsToldAndAllArePresentAgain) {
  NegotiatorDriver negotiator(3);
  for (RankId rank : {2, 0, 1}) negotiator.Submit(rank, {JoinOf()});
  ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(1));
  EXPECT_EQ(Spelled(list, 0).request.op, OpType::kJoin);
  EXPECT_EQ(Spelled(list, 0).request.root, 1);
  EXPECT_THAT(list.buckets[0].joined, IsEmpty());
  EXPECT_FALSE(negotiator->anything_waits());
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  EXPECT_TRUE(negotiator.Responses().empty());
}

TEST(Join, TensorsOfTheLastRankToJoinRunBeforeTheJoin) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(0, {JoinOf()});
  negotiator.Submit(1, {Allreduce("a"), JoinOf()});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(2));
  EXPECT_EQ(Spelled(list, 0).request.name, "a");
  EXPECT_EQ(Spelled(list, 1).request.op, OpType::kJoin);
}

TEST(Join, SubmissionAfterJoiningFailsOnThatRankAlone) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(2, {JoinOf(), Allreduce("a")});
  ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(2));
  EXPECT_EQ(list.errors[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(list.errors[0].status.message()),
              HasSubstr("rank 2 has joined process set 0 and cannot submit tensor 'a'"));
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  list = negotiator.Responses();
  EXPECT_THAT(list.errors, IsEmpty());
  EXPECT_THAT(list.buckets, SizeIs(1));
}

TEST(Join, ReportByIdAfterJoiningFailsToo) {
  NegotiatorDriver negotiator(2);
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  negotiator.Responses();
  negotiator.Submit(1, {JoinOf()});
  negotiator.Receive(1, ReportById(1));
  EXPECT_THAT(negotiator.Responses().errors, SizeIs(1));
  negotiator.Receive(0, ReportById(1));
  negotiator.Responses();
  negotiator.Receive(1, ReportById(1));
  EXPECT_THAT(negotiator.Responses().errors, SizeIs(1));
}

struct OpCase {
  OpType op;
  RankId joined;  // the root is rank 0, the receiver is rank 1
  bool runs;
};

TEST(Join, OperationsRunWithoutTheJoinedRankOrFailWithItsName) {
  const OpCase kCases[] = {
      {OpType::kAllreduce, 2, true},      {OpType::kAllgather, 2, true},  {OpType::kBarrier, 2, true},
      {OpType::kBroadcast, 2, true},      {OpType::kBroadcast, 0, false}, {OpType::kReduce, 2, true},
      {OpType::kReduce, 0, false},        {OpType::kGather, 2, true},     {OpType::kGather, 0, false},
      {OpType::kReduceScatter, 2, false}, {OpType::kAlltoall, 2, false},  {OpType::kScatter, 2, false},
      {OpType::kScatter, 0, false},
  };
  for (const OpCase& c : kCases) {
    SCOPED_TRACE(std::string(Name(c.op)) + " without rank " + std::to_string(c.joined));
    NegotiatorDriver negotiator(3);
    negotiator.Receive(c.joined, {.requests = {JoinOf()}, .identity = "host h, pid 5"});
    for (RankId rank = 0; rank < 3; ++rank) {
      if (rank != c.joined) negotiator.Submit(rank, {{.name = "x", .op = c.op, .shape = {4}}});
    }
    const ResponseList list = negotiator.Responses();
    EXPECT_THAT(list.buckets, SizeIs(c.runs ? 1 : 0));
    ASSERT_THAT(list.errors, SizeIs(c.runs ? 0 : 1));
    if (c.runs) continue;
    EXPECT_EQ(list.errors[0].status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(list.errors[0].ranks, SizeIs(2));
    EXPECT_THAT(std::string(list.errors[0].status.message()),
                AllOf(HasSubstr("rank " + std::to_string(c.joined) + " (host h, pid 5)"), HasSubstr("has joined")));
  }
}

TEST(Join, SendToARankThatJoinedFailsAtOnce) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(1, {JoinOf()});
  negotiator.Submit(0, {{.name = "p2p", .op = OpType::kSendRecv, .root = 0, .receiver = 1}});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0));
  negotiator.SubmitAll({0, 2}, {.name = "p2p", .op = OpType::kSendRecv, .root = 0, .receiver = 2});
  EXPECT_THAT(negotiator.Responses().buckets, SizeIs(1));
}

TEST(Join, ProcessSetsDoNotChangeWithoutARank) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(1, {JoinOf()});
  negotiator.SubmitAll({0, 2}, AddSet({0, 2}));
  EXPECT_THAT(std::string(negotiator.Responses().errors.at(0).status.message()),
              HasSubstr("the process set of ranks 0, 2 needs rank 1, which has joined"));
}

TEST(Join, JoinedRankHasNoRowsAndItsEntryIsSpelledOutOnce) {
  NegotiatorDriver negotiator(2);
  const auto gather = [](int64_t rows) {
    return TensorRequest{.name = "g", .op = OpType::kAllgather, .shape = {rows}};
  };
  for (RankId rank : {0, 1}) negotiator.Submit(rank, {gather(rank + 4)});
  negotiator.Responses();
  negotiator.Submit(1, {JoinOf()});
  negotiator.Receive(0, ReportById(1));
  EXPECT_THAT(Spelled(negotiator.Responses(), 0).first_dims, ElementsAre(4, 0));
  negotiator.Receive(0, ReportById(2));
  EXPECT_EQ(IdOf(negotiator.Responses(), 0), 2u);
}

TEST(Join, AllreduceWithoutARankIsAnsweredById) {
  NegotiatorDriver negotiator(2);
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  negotiator.Responses();
  negotiator.Submit(1, {JoinOf()});
  negotiator.Receive(0, ReportById(1));
  const ResponseList list = negotiator.Responses();
  EXPECT_EQ(IdOf(list, 0), 1u);
  EXPECT_THAT(list.buckets[0].joined, ElementsAre(1));
}

TEST(Join, JoinersWhoDisagreeOnAveragesAllFail) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(0, {JoinOf()});
  TensorRequest zeros = JoinOf();
  zeros.absent = Absent::kCountedAsZeros;
  negotiator.Submit(1, {zeros});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(std::string(list.errors[0].status.message()),
              HasSubstr("rank 0 says joined ranks do not count, rank 1 says joined ranks count as zeros"));
}

TEST(Join, ProcessSetsAreJoinedOneByOne) {
  NegotiatorDriver negotiator(3);
  negotiator.SubmitAll({0, 1, 2}, AddSet({1, 2}));
  negotiator.Responses();
  negotiator.Submit(2, {JoinOf(1)});
  negotiator.Submit(1, {OnSet(1, Allreduce("a")), Allreduce("a")});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(1)) << "set 0 waits for rank 2";
  EXPECT_EQ(Spelled(list, 0).request.process_set, 1u);
  EXPECT_THAT(list.buckets[0].joined, ElementsAre(2));
  negotiator.Submit(1, {JoinOf(1)});
  EXPECT_EQ(Spelled(negotiator.Responses(), 0).request.op, OpType::kJoin);
}

TEST(Join, FailedJoinMakesItsRanksPresentAgain) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(2, {JoinOf()});
  negotiator.Submit(0, {Allreduce("a")});
  negotiator->Fail({0, kJoinName}, absl::DeadlineExceededError("late"));
  ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].name, kJoinName);
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(2));
  negotiator.Submit(1, {Allreduce("a")});
  EXPECT_TRUE(negotiator.Responses().empty()) << "rank 2 is waited for";
  negotiator.Submit(2, {Allreduce("a")});
  EXPECT_THAT(negotiator.Responses().buckets, SizeIs(1));
}

TEST(Join, DepartureOfARankFailsJoinsBeforeAndAfter) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(0, {JoinOf()});
  negotiator.Receive(2, ShuttingDown());
  negotiator.Submit(1, {JoinOf()});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(2));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0));
  EXPECT_THAT(list.errors[1].ranks, ElementsAre(1));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("rank 2 has shut down"));
}

// Rank 1 submits 'a' by an id, and joins. The id is evicted while the report is on its way. If the join took effect at
// once, 'a' would run without rank 1, which has submitted it.
TEST(Join, CountsAfterTheRepetitionOfWhatWasSubmittedBefore) {
  NegotiatorDriver negotiator(2, 1);
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  negotiator.Responses();
  negotiator.SubmitAll({0, 1}, Allreduce("b"));
  negotiator.Responses();
  negotiator.Receive(1, {.cached = {1}, .requests = {JoinOf(), Allreduce("too late")}});
  negotiator.Submit(0, {Allreduce("a")});
  ResponseList list = negotiator.Responses();
  EXPECT_THAT(list.buckets, IsEmpty());
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].name, "too late");
  negotiator.Receive(1, {.repeated = {{1, Allreduce("a")}}});
  list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(1));
  EXPECT_THAT(list.buckets[0].joined, IsEmpty());
  negotiator.Submit(0, {Allreduce("c")});
  EXPECT_THAT(negotiator.Responses().buckets.at(0).joined, ElementsAre(1));
}

}  // namespace
}  // namespace ronda
