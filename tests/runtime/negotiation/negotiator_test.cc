// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/negotiator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Negotiator TwoRanks() { return Negotiator({.world_size = 2, .fusion = {.threshold = 0}}); }

TEST(Negotiator, TensorRunsOnceTheLastRankHasReportedIt) {
  Negotiator negotiator = TwoRanks();
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("a")}), kStart).ok());
  EXPECT_TRUE(negotiator.TakeResponses().empty());
  EXPECT_TRUE(negotiator.anything_waits());
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  const ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.buckets, SizeIs(1));
  EXPECT_EQ(Spelled(list, 0).request, Allreduce("a"));
  EXPECT_FALSE(negotiator.anything_waits());
  EXPECT_TRUE(negotiator.TakeResponses().empty());
}

TEST(Negotiator, TensorsRunInTheOrderInWhichTheyWereAgreedOn) {
  Negotiator negotiator = TwoRanks();
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a"), Allreduce("b"), Allreduce("c")}), kStart).ok());
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("c"), Allreduce("a")}), kStart).ok());
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("b")}), kStart).ok());
  const ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.buckets, SizeIs(3));
  EXPECT_EQ(Spelled(list, 0).request.name, "c");
  EXPECT_EQ(Spelled(list, 1).request.name, "a");
  EXPECT_EQ(Spelled(list, 2).request.name, "b");
}

TEST(Negotiator, SecondTimeIsAnsweredById) {
  Negotiator negotiator = TwoRanks();
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("a")}), kStart).ok());
  negotiator.TakeResponses();
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, ReportById(1), kStart).ok());
  const ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.buckets, SizeIs(1));
  EXPECT_EQ(IdOf(list, 0), 1u);
}

TEST(Negotiator, ChangedShapeIsSpelledOutAndReplacesTheCachedOne) {
  Negotiator negotiator = TwoRanks();
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("a")}), kStart).ok());
  negotiator.TakeResponses();
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("a", {5})}), kStart).ok());
  EXPECT_EQ(Spelled(negotiator.TakeResponses(), 0).request.shape, Shape({5}));
  ASSERT_TRUE(negotiator.Add(0, ReportById(1), kStart).ok()) << "an evicted id is ignored: the rank reports in full";
  EXPECT_FALSE(negotiator.anything_waits());
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, ReportById(2), kStart).ok());
  EXPECT_EQ(IdOf(negotiator.TakeResponses(), 0), 2u);
}

TEST(Negotiator, ReportByIdThatMeetsAChangedShapeIsAMismatch) {
  Negotiator negotiator = TwoRanks();
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("a")}), kStart).ok());
  negotiator.TakeResponses();
  ASSERT_TRUE(negotiator.Add(0, ReportById(1), kStart).ok());
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("a", {5})}), kStart).ok());
  const ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("rank 0 says shape [3], rank 1 says shape [5]"));
}

TEST(Negotiator, ReportByIdCountsThoughItsEntryIsEvictedLater) {
  NegotiatorDriver negotiator(2, 1);
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  negotiator.Responses();
  negotiator.Receive(0, ReportById(1));
  negotiator.SubmitAll({0, 1}, Allreduce("b"));
  negotiator.Responses();
  // When 'a' is evicted, rank 0 repeats its request for 'a', which the negotiator has already counted.
  negotiator.Receive(0, {.repeated = {{1, Allreduce("a")}}});
  negotiator.Submit(1, {Allreduce("a")});
  EXPECT_EQ(Spelled(negotiator.Responses(), 0).request.name, "a");
  EXPECT_FALSE(negotiator->anything_waits());
}

TEST(Negotiator, ReportByIdAfterTheEvictionCountsWhenItIsRepeated) {
  NegotiatorDriver negotiator(2, 1);
  negotiator.SubmitAll({0, 1}, Allreduce("a"));
  negotiator.Responses();
  negotiator.SubmitAll({0, 1}, Allreduce("b"));
  negotiator.Responses();
  negotiator.Receive(0, ReportById(1));
  EXPECT_FALSE(negotiator->anything_waits());
  negotiator.Receive(0, {.repeated = {{1, Allreduce("a")}}});
  EXPECT_TRUE(negotiator->anything_waits());
  negotiator.Submit(1, {Allreduce("a")});
  EXPECT_THAT(negotiator.Responses().buckets, SizeIs(1));
}

TEST(Negotiator, NewTensorDoesNotSlowTheCachedOnes) {
  NegotiatorDriver negotiator(2);
  for (RankId rank : {0, 1}) negotiator.Submit(rank, {Allreduce("a"), Allreduce("b")});
  negotiator.Responses();
  for (RankId rank : {0, 1}) negotiator.Receive(rank, {.cached = {1, 2}, .requests = {Allreduce("new")}});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(3));
  EXPECT_EQ(IdOf(list, 0), 1u);
  EXPECT_EQ(IdOf(list, 1), 2u);
  EXPECT_EQ(Spelled(list, 2).request.name, "new");
}

TEST(Negotiator, ChangedShapeInvalidatesItsEntryAlone) {
  NegotiatorDriver negotiator(2);
  for (RankId rank : {0, 1}) negotiator.Submit(rank, {Allreduce("a"), Allreduce("b")});
  negotiator.Responses();
  for (RankId rank : {0, 1}) negotiator.Receive(rank, {.cached = {2}, .requests = {Allreduce("a", {7})}});
  ResponseList list = negotiator.Responses();
  EXPECT_EQ(IdOf(list, 0), 2u);
  EXPECT_EQ(Spelled(list, 1).request.shape, Shape({7}));
  for (RankId rank : {0, 1}) negotiator.Receive(rank, {.cached = {2, 3}});
  list = negotiator.Responses();
  EXPECT_EQ(IdOf(list, 0), 2u);
  EXPECT_EQ(IdOf(list, 1), 3u);
}

TEST(Negotiator, EveryOperationOnDataIsAnsweredByIdTheSecondTime) {
  for (int op = 0; op <= static_cast<int>(OpType::kSendRecv); ++op) {
    NegotiatorDriver negotiator(2);
    const TensorRequest request = {.name = "x", .op = static_cast<OpType>(op), .shape = {4}, .receiver = 1};
    negotiator.SubmitAll({0, 1}, request);
    ASSERT_THAT(negotiator.Responses().buckets, SizeIs(1)) << Name(request.op);
    for (RankId rank : {0, 1}) negotiator.Receive(rank, ReportById(1));
    EXPECT_EQ(IdOf(negotiator.Responses(), 0), 1u) << Name(request.op);
  }
}

TEST(Negotiator, ShortestLimitsAreAgreedOn) {
  NegotiatorDriver negotiator(2);
  TensorRequest mine = Allreduce("a"), yours = Allreduce("a");
  mine.limits = {.warning = absl::Seconds(5), .deadline = absl::InfiniteDuration()};
  negotiator.Submit(0, {mine});
  negotiator.Submit(1, {yours});
  const WaitLimits shortest = {.warning = absl::Seconds(5), .deadline = WaitLimits().deadline};
  EXPECT_EQ(Spelled(negotiator.Responses(), 0).request.limits, shortest);
}

struct MismatchCase {
  TensorRequest a, b;
  std::string text;
};

class Mismatch : public ::testing::TestWithParam<MismatchCase> {};

TEST_P(Mismatch, FailsOnEveryRankWithBothSidesNamed) {
  Negotiator negotiator = TwoRanks();
  RankReport first = Report({GetParam().b});
  first.identity = "host h, pid 7";
  ASSERT_TRUE(negotiator.Add(1, first, kStart).ok());
  ASSERT_TRUE(negotiator.Add(0, Report({GetParam().a}), kStart).ok());
  const ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.buckets, IsEmpty());
  EXPECT_EQ(list.errors[0].name, GetParam().a.name);
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(list.errors[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr(GetParam().text));
}

const TensorRequest kX = {.name = "x", .shape = {4, 2}};

INSTANTIATE_TEST_SUITE_P(
    EveryProperty, Mismatch,
    ::testing::Values(
        MismatchCase{kX,
                     {.name = "x", .shape = {4, 3}},
                     "tensor 'x': rank 0 says shape [4, 2], rank 1 (host h, pid 7) says shape [4, 3]"},
        MismatchCase{kX,
                     {.name = "x", .dtype = DType::kInt32, .shape = {4, 2}},
                     "rank 0 says dtype float32, rank 1 "
                     "(host h, pid 7) says dtype int32"},
        MismatchCase{kX,
                     {.name = "x", .memory = Memory::kCuda, .shape = {4, 2}},
                     "tensor 'x': rank 0 says memory of the host, rank 1 (host h, pid 7) says memory of a GPU"},
        MismatchCase{kX, {.name = "x", .op = OpType::kAllgather, .shape = {4, 2}}, "says operation allgather"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .reduction = Reduction::kMax}, "says reduce op max"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .reduction = Reduction::kAverage}, "says reduce op average"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .wire = WireFormat::kFloat16}, "says compression fp16"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .prescale = 0.5}, "says prescale 0.5"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .postscale = 2}, "says postscale 2"},
        MismatchCase{{.name = "x", .op = OpType::kBroadcast, .shape = {4}, .root = 0},
                     {.name = "x", .op = OpType::kBroadcast, .shape = {4}, .root = 1},
                     "rank 0 says root 0, rank 1 (host h, pid 7) says root 1"},
        MismatchCase{{.name = "x", .op = OpType::kAllgather, .shape = {4, 2}},
                     {.name = "x", .op = OpType::kAllgather, .shape = {5, 3}},
                     "all dimensions but the first must be equal"},
        MismatchCase{{.name = "x", .op = OpType::kAlltoall, .shape = {4, 2}},
                     {.name = "x", .op = OpType::kAlltoall, .shape = {4, 2, 1}},
                     "all dimensions but the first must be equal"},
        MismatchCase{{.name = "x", .op = OpType::kScatter, .shape = {4, 2}},
                     {.name = "x", .op = OpType::kScatter, .shape = {4, 3}},
                     "all dimensions but the first must be equal"},
        MismatchCase{{.name = "x", .op = OpType::kReduceScatter, .shape = {4, 2}},
                     {.name = "x", .op = OpType::kReduceScatter, .shape = {5, 2}},
                     "rank 0 says shape [4, 2], rank 1 (host h, pid 7) says shape [5, 2]"},
        MismatchCase{{.name = "x", .op = OpType::kReduce, .shape = {4}, .root = 0},
                     {.name = "x", .op = OpType::kReduce, .shape = {4}, .root = 1},
                     "rank 0 says root 0, rank 1 (host h, pid 7) says root 1"},
        MismatchCase{{.name = "x", .op = OpType::kSendRecv, .root = 0, .receiver = 1},
                     {.name = "x", .op = OpType::kSendRecv, .root = 1, .receiver = 0},
                     "rank 0 says sender 0, rank 1 (host h, pid 7) says sender 1"},
        MismatchCase{kX,
                     {.name = "x", .shape = {4, 2}, .overflow = TensorRequest::Overflow::kDetected},
                     "rank 0 says overflow detection off, rank 1 (host h, pid 7) says overflow detection on"},
        MismatchCase{kX,
                     {.name = "x", .shape = {4, 2}, .wire = WireFormat::kFp8E4M3},
                     "rank 0 says compression none, rank 1 (host h, pid 7) says compression fp8_e4m3"},
        MismatchCase{{.name = "ronda/unnamed/4", .shape = {4, 2}},
                     {.name = "ronda/unnamed/4", .op = OpType::kBroadcast, .dtype = DType::kInt32, .shape = {}},
                     "the unnamed tensor: rank 0 says allreduce of float32 [4, 2], rank 1 (host h, pid 7) says "
                     "broadcast of int32 []"},
        MismatchCase{
            {.name = "ronda/unnamed/4", .shape = {4}, .reduction = Reduction::kMax},
            {.name = "ronda/unnamed/4", .shape = {4}, .reduction = Reduction::kMin},
            "rank 0 says allreduce of float32 [4] with reduce op max, rank 1 (host h, pid 7) says allreduce of "
            "float32 [4] with reduce op min"},
        MismatchCase{AddSet({0, 1}, "x"), AddSet({1}, "x"),
                     "rank 0 says members 0, 1, rank 1 (host h, pid 7) says members 1"},
        MismatchCase{{.name = "x", .op = OpType::kRemoveProcessSet, .subject = 1},
                     {.name = "x", .op = OpType::kRemoveProcessSet, .subject = 2},
                     "rank 0 says process set 1, rank 1 (host h, pid 7) says process set 2"}));

TEST(Negotiator, MismatchInTheGroupFailsTheWholeGroup) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(0, {InGroup("g", 2, Allreduce("a")), InGroup("g", 2, Allreduce("b"))});
  negotiator.Submit(1, {InGroup("h", 2, Allreduce("a")), InGroup("g", 2, Allreduce("b"))});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(2));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("rank 0 says group 'g', rank 1 says group 'h'"));
}

TEST(Negotiator, PrescaleThatIsNoNumberIsTheSameAsItself) {
  NegotiatorDriver negotiator(2);
  TensorRequest request = Allreduce("a");
  request.prescale = std::numeric_limits<double>::quiet_NaN();
  negotiator.SubmitAll({0, 1}, request);
  EXPECT_THAT(negotiator.Responses().buckets, SizeIs(1));
}

TEST(Signature, IsEqualWhereRanksMayMeet) {
  const auto of = [](TensorRequest request) { return SignatureOf(request); };
  EXPECT_EQ(of({.name = "x", .shape = {3}}), of({.name = "y", .shape = {3}, .limits = WaitLimits{}}));
  EXPECT_NE(of({.shape = {3}}), of({.shape = {4}}));
  EXPECT_NE(of({.shape = {3}}), of({.op = OpType::kBroadcast, .shape = {3}}));
  EXPECT_NE(of({.shape = {3}}), of({.dtype = DType::kInt32, .shape = {3}}));
  EXPECT_NE(of({.op = OpType::kBroadcast}), of({.op = OpType::kBroadcast, .root = 1}));
  const auto gather = [&](Shape shape) { return of({.op = OpType::kAllgather, .shape = std::move(shape)}); };
  EXPECT_EQ(gather({3, 2}), gather({5, 2})) << "each rank has rows of its own";
  EXPECT_NE(gather({3, 2}), gather({3, 4}));
  EXPECT_NE(gather({3}), gather({3, 1}));
}

TEST(Negotiator, MismatchLeavesTheNameFreeForTheNextAttempt) {
  Negotiator negotiator = TwoRanks();
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("a", {4})}), kStart).ok());
  negotiator.TakeResponses();
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("a")}), kStart).ok());
  EXPECT_THAT(negotiator.TakeResponses().buckets, SizeIs(1));
}

TEST(Negotiator, AllgatherCollectsTheFirstDimensions) {
  Negotiator negotiator({.world_size = 3});
  for (RankId rank : {2, 0, 1}) {
    const TensorRequest request = {.name = "g", .op = OpType::kAllgather, .shape = {rank * 10, 2}};
    ASSERT_TRUE(negotiator.Add(rank, Report({request}), kStart).ok());
  }
  const ResponseList list = negotiator.TakeResponses();
  EXPECT_THAT(Spelled(list, 0).first_dims, ElementsAre(0, 10, 20));
  EXPECT_EQ(RequestOf(Spelled(list, 0), 1, Group::All(3)).shape, Shape({10, 2}));
}

TEST(Negotiator, FirstDimensionsAreGatheredByIdAndInFullAlike) {
  NegotiatorDriver negotiator(3);
  const auto gather = [](int64_t rows) {
    return TensorRequest{.name = "g", .op = OpType::kGather, .shape = {rows, 2}, .root = 2};
  };
  for (RankId rank : {0, 1, 2}) negotiator.Submit(rank, {gather(rank)});
  EXPECT_THAT(Spelled(negotiator.Responses(), 0).first_dims, ElementsAre(0, 1, 2));
  negotiator.Receive(0, ReportById(1));
  negotiator.Submit(1, {gather(7)});
  negotiator.Receive(2, ReportById(1));
  const ResponseList list = negotiator.Responses();
  EXPECT_THAT(Spelled(list, 0).first_dims, ElementsAre(0, 7, 2));
  EXPECT_EQ(Spelled(list, 0).request.shape, Shape({0, 2})) << "in either order";
}

TEST(Negotiator, RowsOfTheScattersRootCount) {
  NegotiatorDriver negotiator(3);
  const auto scatter = [](int64_t rows) {
    return TensorRequest{.name = "s", .op = OpType::kScatter, .shape = {rows, 2}, .root = 1};
  };
  negotiator.Submit(0, {scatter(0)});
  negotiator.Submit(1, {scatter(9)});
  negotiator.Submit(2, {scatter(4)});
  EXPECT_EQ(Spelled(negotiator.Responses(), 0).request.shape, Shape({9, 2}));
}

TEST(Negotiator, SendAndReceiveNeedTheTwoAlone) {
  NegotiatorDriver negotiator(4);
  const TensorRequest send = {.name = "p2p", .op = OpType::kSendRecv, .shape = {2}, .root = 3, .receiver = 1};
  negotiator.Submit(3, {send});
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.Submit(1, {send});
  EXPECT_EQ(Spelled(negotiator.Responses(), 0).request, send);
  EXPECT_EQ((*negotiator).Add(2, Report({send}), kStart).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Negotiator, DepartureOfAThirdRankDoesNotTouchSendAndReceive) {
  NegotiatorDriver negotiator(3);
  const TensorRequest send = {.name = "p2p", .op = OpType::kSendRecv, .shape = {2}, .root = 0, .receiver = 1};
  negotiator.Submit(0, {send});
  negotiator.Receive(2, ShuttingDown());
  negotiator.Submit(1, {send});
  EXPECT_THAT(negotiator.Responses().buckets, SizeIs(1));
}

TEST(Negotiator, RankThatLeavesFailsWhatLacksItNowAndLater) {
  Negotiator negotiator({.world_size = 3});
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  ASSERT_TRUE(negotiator.Add(2, {.presence = RankReport::Presence::kShuttingDown}, kStart).ok());
  ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0));
  EXPECT_EQ(list.errors[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("rank 2 has shut down"));
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("b")}), kStart).ok());
  list = negotiator.TakeResponses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(1));
  EXPECT_EQ(list.job, ResponseList::Job::kGoesOn);
}

TEST(Negotiator, RankThatDrainsFailsWhatLacksItAndCompletesItsOwn) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(0, {Allreduce("lacks it")});
  negotiator.Submit(1, {Allreduce("its own"), Allreduce("nobody else's")});
  negotiator.Receive(1, Draining());
  ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].name, "lacks it");
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("rank 1 has shut down and will not submit"));
  negotiator.Submit(0, {Allreduce("its own"), Allreduce("lacks it, too")});
  list = negotiator.Responses();
  EXPECT_THAT(list.buckets, SizeIs(1));
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].name, "lacks it, too");
  negotiator.Receive(0, ShuttingDown());
  list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].name, "nobody else's");
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(1));
  EXPECT_EQ(list.job, ResponseList::Job::kGoesOn);
  negotiator.Receive(1, ShuttingDown());
  EXPECT_EQ(negotiator.Responses().job, ResponseList::Job::kEnds);
}

TEST(Negotiator, RankThatDrainsAfterItsJoinIsAbsentAsBefore) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(1, {JoinOf()});
  negotiator.Receive(1, Draining());
  negotiator.Submit(0, {Allreduce("a")});
  EXPECT_THAT(negotiator.Responses().buckets, SizeIs(1));
  negotiator.Submit(0, {JoinOf()});
  const ResponseList list = negotiator.Responses();
  EXPECT_THAT(list.buckets, SizeIs(1));
  EXPECT_THAT(list.errors, IsEmpty());
}

TEST(Negotiator, RanksThatCallDifferentFunctionsAreToldBoth) {
  NegotiatorDriver negotiator(2);
  TensorRequest broadcast = {.name = "o", .op = OpType::kAllgather, .dtype = DType::kUint8, .shape = {7}};
  TensorRequest gather = broadcast;
  broadcast.function = TensorRequest::Function::kBroadcastObject;
  gather.function = TensorRequest::Function::kAllgatherObject;
  negotiator.Submit(0, {broadcast});
  negotiator.Submit(1, {gather});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(std::string(list.errors[0].status.message()),
              HasSubstr("rank 0 says operation broadcast_object, rank 1 says operation allgather_object"));
  EXPECT_EQ(DescribeTensor(gather), "tensor 'o' (allgather_object)");
}

TEST(Negotiator, JobEndsWhenEveryRankHasLeft) {
  Negotiator negotiator = TwoRanks();
  ASSERT_TRUE(negotiator.Add(0, {.presence = RankReport::Presence::kShuttingDown}, kStart).ok());
  EXPECT_TRUE(negotiator.TakeResponses().empty());
  ASSERT_TRUE(negotiator.Add(1, {.presence = RankReport::Presence::kShuttingDown}, kStart).ok());
  EXPECT_EQ(negotiator.TakeResponses().job, ResponseList::Job::kEnds);
  EXPECT_FALSE(negotiator.Add(1, Report({Allreduce("late")}), kStart).ok());
}

TEST(Negotiator, FailureAnswersOnlyTheRanksThatHadSubmitted) {
  Negotiator negotiator = TwoRanks();
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  negotiator.Fail({0, "a"}, absl::DeadlineExceededError("too late"));
  negotiator.Fail({0, "unknown"}, absl::DeadlineExceededError("no rank waits for it"));
  const ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0));
  // The late submission starts a new negotiation of 'a', which is separate from the failed negotiation.
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("a")}), kStart).ok());
  EXPECT_TRUE(negotiator.TakeResponses().empty());
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  EXPECT_THAT(negotiator.TakeResponses().buckets, SizeIs(1));
}

TEST(Negotiator, ReportNoCorrectRankCanSendIsRefused) {
  const std::vector<RankReport> reports = {
      Report({Allreduce("a"), Allreduce("a")}),
      Report({{.name = "r", .op = OpType::kBroadcast, .root = 2}}),
      Report({{.name = "r", .op = OpType::kSendRecv, .root = 1, .receiver = 1}}),
      Report({{.name = "r", .op = OpType::kSendRecv, .root = 0, .receiver = 2}}),
      Report({OnSet(7, Allreduce("a"))}),
      Report({OnSet(1, Allreduce("a"))}),
      Report({OnSet(1, AddSet({0}))}),
      Report({AddSet({0, 2})}),
      Report({JoinOf(), JoinOf()}),
      Report({JoinOf(1)}),
      Report({JoinOf(9)}),
  };
  for (size_t i = 0; i < reports.size(); ++i) {
    NegotiatorDriver negotiator(2);
    negotiator.SubmitAll({0, 1}, AddSet({1}));
    EXPECT_EQ(negotiator->Add(0, reports[i], kStart).code(), absl::StatusCode::kInvalidArgument) << "report " << i;
  }
  NegotiatorDriver negotiator(2);
  for (RankId unknown : {-1, 2}) {
    EXPECT_EQ(negotiator->Add(unknown, {}, kStart).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ronda
