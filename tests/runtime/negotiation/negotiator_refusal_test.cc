// SPDX-License-Identifier: Apache-2.0

// Tests tensors that a rank has refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/negotiation/negotiator.h"
#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const std::string kCall = absl::StrCat(kUnnamedPrefix, 7);

std::string OnlyError(const ResponseList& list, const std::vector<RankId>& ranks) {
  EXPECT_THAT(list.buckets, SizeIs(0));
  if (list.errors.size() != 1) return absl::StrCat(list.errors.size(), " errors");
  EXPECT_EQ(list.errors[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(list.errors[0].ranks, ranks);
  return std::string(list.errors[0].status.message());
}

TEST(NegotiatorRefusal, FailsTheTensorOnAllOnceTheLastRankHasCome) {
  for (const std::vector<RankId>& order : {std::vector<RankId>{0, 1, 2}, {1, 0, 2}, {0, 2, 1}}) {
    NegotiatorDriver negotiator(3);
    for (RankId rank : order) {
      EXPECT_TRUE(negotiator.Responses().empty());
      negotiator.Submit(rank, {rank == 1 ? Refusal(kCall, "no such root") : Allreduce(kCall)});
    }
    EXPECT_EQ(OnlyError(negotiator.Responses(), {0, 1, 2}), "rank 1 has refused to take part: no such root");
    EXPECT_FALSE(negotiator->anything_waits());
    negotiator.SubmitAll({2, 1, 0}, Allreduce(kCall));
    EXPECT_THAT(negotiator.Responses().buckets, SizeIs(1)) << "the name is free again";
  }
}

TEST(NegotiatorRefusal, FailsATensorThatTheOthersReportById) {
  for (const std::vector<RankId>& order : {std::vector<RankId>{0, 1}, {1, 0}}) {
    NegotiatorDriver negotiator(2);
    negotiator.SubmitAll({0, 1}, Allreduce(kCall));
    negotiator.Responses();
    for (RankId rank : order) {
      negotiator.Receive(rank, rank == 0 ? ReportById(1) : Report({Refusal(kCall, "a wrong dtype")}));
    }
    EXPECT_THAT(OnlyError(negotiator.Responses(), {0, 1}), HasSubstr("rank 1 has refused to take part: a wrong dtype"));
    for (RankId rank : {0, 1}) negotiator.Receive(rank, ReportById(1));
    EXPECT_EQ(IdOf(negotiator.Responses(), 0), 1u);
  }
}

TEST(NegotiatorRefusal, OfTheFirstInRankOrderIsTold) {
  for (const std::vector<RankId>& order : {std::vector<RankId>{0, 1, 2}, {2, 1, 0}}) {
    NegotiatorDriver negotiator(3);
    for (RankId rank : order) {
      negotiator.Submit(rank, {rank == 0 ? Allreduce(kCall) : Refusal(kCall, absl::StrCat("words of ", rank))});
    }
    EXPECT_THAT(OnlyError(negotiator.Responses(), {0, 1, 2}), AllOf(HasSubstr("rank 1"), HasSubstr("words of 1")));
  }
}

TEST(NegotiatorRefusal, OfAllRanksLeavesNothing) {
  NegotiatorDriver negotiator(2);
  for (RankId rank : {1, 0}) negotiator.Submit(rank, {Refusal(kCall, "the same mistake")});
  EXPECT_THAT(OnlyError(negotiator.Responses(), {0, 1}), HasSubstr("rank 0"));
  EXPECT_FALSE(negotiator->anything_waits());
}

TEST(NegotiatorRefusal, IsToldRatherThanAContradictionOfOthers) {
  for (const std::vector<RankId>& order : {std::vector<RankId>{0, 1, 2}, {2, 1, 0}}) {
    NegotiatorDriver negotiator(3);
    for (RankId rank : order) {
      negotiator.Submit(rank, {rank == 2 ? Refusal(kCall, "no") : Allreduce(kCall, {rank + 1})});
    }
    EXPECT_THAT(OnlyError(negotiator.Responses(), {0, 1, 2}), AllOf(HasSubstr("rank 2"), Not(HasSubstr("disagree"))));
  }
}

TEST(NegotiatorRefusal, OfAMessageConcernsItsTwoRanks) {
  TensorRequest message = {.name = "m", .op = OpType::kSendRecv, .shape = {2}, .root = 2, .receiver = 1};
  TensorRequest refusal = message;
  refusal.shape = {};
  refusal.refusal = "no room";
  NegotiatorDriver negotiator(3);
  negotiator.Submit(2, {message});
  negotiator.Submit(1, {refusal});
  EXPECT_THAT(OnlyError(negotiator.Responses(), {1, 2}), HasSubstr("rank 1 has refused to take part: no room"));
}

TEST(NegotiatorRefusal, NamesTheRankThatIsLateAtTheDeadline) {
  NegotiatorDriver negotiator(2);
  TensorRequest refusal = Refusal(kCall, "no");
  refusal.limits = WaitLimits{.warning = absl::Seconds(9), .deadline = absl::Seconds(1)};
  negotiator.Submit(0, {refusal});
  StallInspector inspector({});
  const auto findings = inspector.Inspect(negotiator->waiting(), kStart + absl::Seconds(2));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].text, AllOf(HasSubstr("the unnamed tensor has waited"), HasSubstr("missing: rank 1")));
}

TEST(Refusal, FailsEachTensorOfAGroupThatARankRefusesInAnyOrder) {
  for (const std::string refused_first : {"g.0", "g.1"}) {
    NegotiatorDriver negotiator(2);
    negotiator.Submit(0, {Refusal(refused_first, "no")});
    negotiator.Submit(1, {InGroup("g", 2, Allreduce("g.0")), InGroup("g", 2, Allreduce("g.1"))});
    negotiator.Submit(0, {Refusal(refused_first == "g.0" ? "g.1" : "g.0", "no")});
    const ResponseList list = negotiator.Responses();
    ASSERT_EQ(list.errors.size(), 2u);
    for (const TensorError& error : list.errors) EXPECT_EQ(error.ranks, std::vector<RankId>({0, 1}));
    EXPECT_FALSE(negotiator->anything_waits());
  }
}

}  // namespace
}  // namespace ronda
