// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/pending_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/negotiation/negotiator.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr absl::Time kStart = absl::UnixEpoch();
using Verdict = StallInspector::Finding::Verdict;

class StallInspectorTest : public ::testing::Test {
 protected:
  void Submit(RankId rank, const std::string& name, absl::Time now) {
    ASSERT_TRUE(
        negotiator_.Add(rank, {.requests = {{.name = name, .shape = {3}}}, .identity = Identity(rank)}, now).ok());
  }

  static std::string Identity(RankId rank) { return "host h, pid " + std::to_string(100 + rank); }

  Negotiator negotiator_{{.world_size = 3, .limits = {.warning = absl::Seconds(10), .deadline = absl::Seconds(60)}}};
  StallInspector inspector_{{}};
};

TEST_F(StallInspectorTest, LateRankIsNamedAfterTheWarningTimeOnce) {
  Submit(0, "a", kStart);
  Submit(2, "a", kStart);
  Submit(1, "b", kStart + absl::Seconds(5));
  EXPECT_THAT(inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(9)), IsEmpty());
  const auto findings = inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(10));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kWarn);
  EXPECT_EQ(findings[0].text,
            "tensor 'a' (allreduce of float32 [3]) has waited for 10s: 2 of 3 ranks are ready; missing: rank 1 "
            "(host h, pid 101), which has submitted 'b' instead");
  EXPECT_THAT(inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(11)), IsEmpty());
}

TEST_F(StallInspectorTest, TensorFailsAfterTheDeadline) {
  Submit(0, "a", kStart);
  Submit(2, "a", kStart);
  const auto findings = inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(60));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kFail);
  EXPECT_EQ(findings[0].tensor, TensorKey(0, "a"));
  EXPECT_THAT(findings[0].text, HasSubstr("missing: rank 1"));
}

TEST_F(StallInspectorTest, TensorOfTheSameNameIsReportedAgainWhenItStallsAgain) {
  Submit(0, "a", kStart);
  EXPECT_THAT(inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(10)), SizeIs(1));
  for (RankId rank : {1, 2}) Submit(rank, "a", kStart + absl::Seconds(11));
  negotiator_.TakeResponses();
  Submit(0, "a", kStart + absl::Seconds(12));
  EXPECT_THAT(inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(22)), SizeIs(1));
}

TEST_F(StallInspectorTest, WaitingForOthersToShutDownIsReportedToo) {
  ASSERT_TRUE(negotiator_.Add(0, {.presence = RankReport::Presence::kShuttingDown}, kStart).ok());
  const auto findings = inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(60));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kFail);
  EXPECT_THAT(findings[0].text, HasSubstr("missing: rank 1"));
  EXPECT_THAT(findings[0].text, HasSubstr("rank 2"));
}

TEST_F(StallInspectorTest, LooksAgainOnlyWhileSomethingWaits) {
  EXPECT_EQ(inspector_.NextInspection(negotiator_.waiting(), kStart), absl::InfiniteFuture());
  Submit(0, "a", kStart);
  EXPECT_LE(inspector_.NextInspection(negotiator_.waiting(), kStart), kStart + absl::Seconds(2));
}

TEST_F(StallInspectorTest, LimitsOfATensorsOwnHold) {
  const WaitLimits brief = {.warning = absl::Seconds(1), .deadline = absl::Seconds(2)};
  ASSERT_TRUE(negotiator_.Add(0, {.requests = {{.name = "brief", .limits = brief}, {.name = "usual"}}}, kStart).ok());
  EXPECT_LE(inspector_.NextInspection(negotiator_.waiting(), kStart), kStart + absl::Seconds(1) / 8);
  auto findings = inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(1));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].tensor.name, "brief");
  EXPECT_EQ(findings[0].verdict, Verdict::kWarn);
  findings = inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(2));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kFail);
  negotiator_.Fail(findings[0].tensor, absl::DeadlineExceededError(findings[0].text));
  EXPECT_GE(inspector_.NextInspection(negotiator_.waiting(), kStart), kStart + absl::Seconds(1));
}

TEST_F(StallInspectorTest, ShortestOfTheSubmittedLimitsHolds) {
  const WaitLimits quick_warning = {.warning = absl::Seconds(1), .deadline = absl::InfiniteDuration()};
  const WaitLimits quick_deadline = {.warning = absl::InfiniteDuration(), .deadline = absl::Seconds(3)};
  ASSERT_TRUE(negotiator_.Add(0, {.requests = {{.name = "a", .limits = quick_warning}}}, kStart).ok());
  ASSERT_TRUE(negotiator_.Add(1, {.requests = {{.name = "a", .limits = quick_deadline}}}, kStart).ok());
  EXPECT_EQ(inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(1)).at(0).verdict, Verdict::kWarn);
  EXPECT_EQ(inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(3)).at(0).verdict, Verdict::kFail);
}

TEST_F(StallInspectorTest, LastActionOfTheLateRankIsReported) {
  StallInspector informed({.last_activity = [](RankId rank) {
    return rank == 1 ? std::string("did last, 9 s ago: started allreduce 'w'") : "";
  }});
  Submit(0, "a", kStart);
  const auto findings = informed.Inspect(negotiator_.waiting(), kStart + absl::Seconds(10));
  EXPECT_THAT(
      findings.at(0).text,
      HasSubstr("rank 1, which has nothing else in flight and did last, 9 s ago: started allreduce 'w'; rank 2, "
                "which has nothing else in flight"));
}

TEST_F(StallInspectorTest, JoinWaitsFromTheLastThingThatHappenedInItsProcessSet) {
  const TensorRequest join = {.name = std::string(kJoinName), .op = OpType::kJoin};
  ASSERT_TRUE(negotiator_.Add(2, {.requests = {join}}, kStart).ok());
  const absl::Time later = kStart + absl::Seconds(55);
  for (RankId rank : {0, 1}) Submit(rank, "a", later);
  EXPECT_THAT(inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(60)), IsEmpty());
  const auto findings = inspector_.Inspect(negotiator_.waiting(), later + absl::Seconds(10));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].tensor, TensorKey(0, std::string(kJoinName)));
  EXPECT_THAT(findings[0].text, HasSubstr("the join of process set 0 has waited for 10s: 1 of 3 ranks are ready"));
}

TEST_F(StallInspectorTest, RanksThatHaveJoinedAreNotMissing) {
  const TensorRequest join = {.name = std::string(kJoinName), .op = OpType::kJoin};
  ASSERT_TRUE(negotiator_.Add(2, {.requests = {join}}, kStart).ok());
  Submit(0, "a", kStart);
  for (const auto& finding : inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(10))) {
    if (finding.tensor.name != "a") continue;
    EXPECT_THAT(finding.text, HasSubstr("rank 1"));
    EXPECT_THAT(finding.text, Not(HasSubstr("rank 2")));
  }
}

TEST_F(StallInspectorTest, GroupThatNobodyCompletesIsReported) {
  const TensorRequest member = {.name = "a", .group = "g", .group_size = 2};
  for (RankId rank : {0, 1, 2}) ASSERT_TRUE(negotiator_.Add(rank, {.requests = {member}}, kStart).ok());
  const auto findings = inspector_.Inspect(negotiator_.waiting(), kStart + absl::Seconds(60));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].text, HasSubstr("group 'g', of which 1 of 2 tensors are ready"));
  negotiator_.Fail(findings[0].tensor, absl::DeadlineExceededError(findings[0].text));
  EXPECT_THAT(negotiator_.TakeResponses().errors, SizeIs(1));
  EXPECT_FALSE(negotiator_.anything_waits());
}

}  // namespace
}  // namespace ronda
