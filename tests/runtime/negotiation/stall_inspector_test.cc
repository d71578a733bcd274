#include "runtime/negotiation/stall_inspector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ronda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

  Negotiator negotiator_{{.world_size = 3}};
  StallInspector inspector_{{.warning = absl::Seconds(10), .deadline = absl::Seconds(60)}};
};

TEST_F(StallInspectorTest, LateRankIsNamedAfterTheWarningTimeOnce) {
  Submit(0, "a", kStart);
  Submit(2, "a", kStart);
  Submit(1, "b", kStart + absl::Seconds(5));
  EXPECT_THAT(inspector_.Inspect(negotiator_, kStart + absl::Seconds(9)), IsEmpty());
  const auto findings = inspector_.Inspect(negotiator_, kStart + absl::Seconds(10));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kWarn);
  EXPECT_EQ(findings[0].text,
            "tensor 'a' (allreduce of float32 [3]) has waited for 10s: 2 of 3 ranks are ready; missing: rank 1 "
            "(host h, pid 101), which has submitted 'b' instead");
  EXPECT_THAT(inspector_.Inspect(negotiator_, kStart + absl::Seconds(11)), IsEmpty());
}

TEST_F(StallInspectorTest, TensorFailsAfterTheDeadline) {
  Submit(0, "a", kStart);
  Submit(2, "a", kStart);
  const auto findings = inspector_.Inspect(negotiator_, kStart + absl::Seconds(60));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kFail);
  EXPECT_EQ(findings[0].name, "a");
  EXPECT_THAT(findings[0].text, HasSubstr("missing: rank 1"));
}

TEST_F(StallInspectorTest, TensorOfTheSameNameIsReportedAgainWhenItStallsAgain) {
  Submit(0, "a", kStart);
  EXPECT_THAT(inspector_.Inspect(negotiator_, kStart + absl::Seconds(10)), SizeIs(1));
  for (RankId rank : {1, 2}) Submit(rank, "a", kStart + absl::Seconds(11));
  negotiator_.TakeResponses();
  Submit(0, "a", kStart + absl::Seconds(12));
  EXPECT_THAT(inspector_.Inspect(negotiator_, kStart + absl::Seconds(22)), SizeIs(1));
}

TEST_F(StallInspectorTest, WaitingForOthersToShutDownIsReportedToo) {
  ASSERT_TRUE(negotiator_.Add(0, {.membership = RankReport::Membership::kLeaving}, kStart).ok());
  const auto findings = inspector_.Inspect(negotiator_, kStart + absl::Seconds(60));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kFail);
  EXPECT_THAT(findings[0].text, HasSubstr("missing: rank 1"));
  EXPECT_THAT(findings[0].text, HasSubstr("rank 2"));
}

TEST_F(StallInspectorTest, LooksAgainOnlyWhileSomethingWaits) {
  EXPECT_EQ(inspector_.NextInspection(negotiator_, kStart), absl::InfiniteFuture());
  Submit(0, "a", kStart);
  EXPECT_LE(inspector_.NextInspection(negotiator_, kStart), kStart + absl::Seconds(2));
}

}  // namespace
}  // namespace ronda
