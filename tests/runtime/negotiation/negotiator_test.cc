#include "runtime/negotiation/negotiator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Time kStart = absl::UnixEpoch();

TensorRequest Allreduce(const std::string& name, Shape shape = {3}) {
  return {.name = name, .shape = std::move(shape)};
}

RankReport Report(std::vector<TensorRequest> requests) { return {.requests = std::move(requests)}; }

RankReport ReportById(CacheId id) { return {.cached = {id}}; }

const Response& Spelled(const ResponseList& list, size_t bucket, size_t position = 0) {
  return std::get<Response>(list.buckets.at(bucket).at(position));
}

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
  EXPECT_EQ(std::get<CacheId>(list.buckets[0][0]), 1u);
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
  EXPECT_EQ(std::get<CacheId>(negotiator.TakeResponses().buckets.at(0).at(0)), 2u);
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

TEST(Negotiator, EvictionForgetsReportsById) {
  Negotiator negotiator({.world_size = 2, .cache_capacity = 1, .fusion = {.threshold = 0}});
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("a")}), kStart).ok());
  negotiator.TakeResponses();
  ASSERT_TRUE(negotiator.Add(0, ReportById(1), kStart).ok());
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("b")}), kStart).ok());
  negotiator.TakeResponses();
  EXPECT_FALSE(negotiator.anything_waits()) << "rank 0 sees the eviction of 'a' and reports it in full";
  for (RankId rank : {0, 1}) ASSERT_TRUE(negotiator.Add(rank, Report({Allreduce("a")}), kStart).ok());
  EXPECT_EQ(Spelled(negotiator.TakeResponses(), 0).request.name, "a");
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
  EXPECT_EQ(list.errors[0].name, "x");
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
        MismatchCase{kX, {.name = "x", .op = OpType::kAllgather, .shape = {4, 2}}, "says operation allgather"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .reduction = Reduction::kMax}, "says reduce op max"},
        MismatchCase{kX,
                     {.name = "x", .shape = {4, 2}, .reduction = Reduction::kAverage},
                     "says reduce op average"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .wire = WireFormat::kFloat16}, "says compression fp16"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .prescale = 0.5}, "says prescale 0.5"},
        MismatchCase{kX, {.name = "x", .shape = {4, 2}, .postscale = 2}, "says postscale 2"},
        MismatchCase{{.name = "x", .op = OpType::kBroadcast, .shape = {4}, .root = 0},
                     {.name = "x", .op = OpType::kBroadcast, .shape = {4}, .root = 1},
                     "rank 0 says root 0, rank 1 (host h, pid 7) says root 1"},
        MismatchCase{{.name = "x", .op = OpType::kAllgather, .shape = {4, 2}},
                     {.name = "x", .op = OpType::kAllgather, .shape = {5, 3}},
                     "all dimensions but the first must be equal"}));

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
  EXPECT_EQ(RequestOf(Spelled(list, 0), 1).shape, Shape({10, 2}));
}

TEST(Negotiator, RankThatLeavesFailsWhatLacksItNowAndLater) {
  Negotiator negotiator({.world_size = 3});
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  ASSERT_TRUE(negotiator.Add(2, {.membership = RankReport::Membership::kLeaving}, kStart).ok());
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

TEST(Negotiator, JobEndsWhenEveryRankHasLeft) {
  Negotiator negotiator = TwoRanks();
  ASSERT_TRUE(negotiator.Add(0, {.membership = RankReport::Membership::kLeaving}, kStart).ok());
  EXPECT_TRUE(negotiator.TakeResponses().empty());
  ASSERT_TRUE(negotiator.Add(1, {.membership = RankReport::Membership::kLeaving}, kStart).ok());
  EXPECT_EQ(negotiator.TakeResponses().job, ResponseList::Job::kEnds);
  EXPECT_FALSE(negotiator.Add(1, Report({Allreduce("late")}), kStart).ok());
}

TEST(Negotiator, FailureAnswersOnlyTheRanksThatHadSubmitted) {
  Negotiator negotiator = TwoRanks();
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  negotiator.Fail("a", absl::DeadlineExceededError("too late"));
  negotiator.Fail("unknown", absl::DeadlineExceededError("nobody waits for it"));
  const ResponseList list = negotiator.TakeResponses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0));
  // The late submission starts a new agreement, and is not mixed up with the one that failed.
  ASSERT_TRUE(negotiator.Add(1, Report({Allreduce("a")}), kStart).ok());
  EXPECT_TRUE(negotiator.TakeResponses().empty());
  ASSERT_TRUE(negotiator.Add(0, Report({Allreduce("a")}), kStart).ok());
  EXPECT_THAT(negotiator.TakeResponses().buckets, SizeIs(1));
}

TEST(Negotiator, ReportNoCorrectRankCanSendIsRefused) {
  Negotiator negotiator = TwoRanks();
  EXPECT_EQ(negotiator.Add(0, Report({Allreduce("a"), Allreduce("a")}), kStart).code(),
            absl::StatusCode::kInvalidArgument);
  const TensorRequest rootless = {.name = "r", .op = OpType::kBroadcast, .root = 2};
  EXPECT_EQ(negotiator.Add(1, Report({rootless}), kStart).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ronda
