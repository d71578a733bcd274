// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/wait_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"

namespace ronda {
namespace {

class WaitWatchTest : public ::testing::Test {
 protected:
  static RunningCollective WithLimits(const WaitLimits& limits) {
    return {.self = 0,
            .op = OpType::kAlltoall,
            .label = "tokens",
            .limits = limits,
            .bytes_total = 4096,
            .bytes_done = 1024};
  }

  const Peer late_ = {.rank = 1, .host = "node7", .pid = 42};
  const FlightBoard flights_{2};
};

TEST_F(WaitWatchTest, SaysNothingBeforeItIsTime) {
  ::testing::internal::CaptureStderr();
  const RunningCollective running = WithLimits({.warning = absl::Hours(1), .deadline = absl::Hours(2)});
  WaitWatch watch(running, flights_);
  EXPECT_EQ(watch.Check(late_), absl::OkStatus());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_GT(watch.UntilNextCheck(), absl::Minutes(50));
  EXPECT_LE(watch.UntilNextCheck(), absl::Hours(1));
}

TEST_F(WaitWatchTest, WarnsOnceAndThenWaitsForTheDeadline) {
  ::testing::internal::CaptureStderr();
  const RunningCollective running = WithLimits({.warning = absl::ZeroDuration(), .deadline = absl::Hours(2)});
  WaitWatch watch(running, flights_);
  EXPECT_EQ(watch.UntilNextCheck(), absl::ZeroDuration());
  EXPECT_EQ(watch.Check(late_), absl::OkStatus());
  EXPECT_EQ(watch.Check(late_), absl::OkStatus());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ronda[0] W has waited 0 for rank 1 (host node7, pid 42) in alltoall 'tokens', 1024 of 4096 bytes done; "
            "rank 1 has done nothing yet\n");
  EXPECT_GT(watch.UntilNextCheck(), absl::Hours(1));
}

// From the recorded event, ranks that wait for this rank learn that it also waits.
TEST_F(WaitWatchTest, RecordsThatThisRankWaits) {
  ::testing::internal::CaptureStderr();
  const RunningCollective running = WithLimits({.warning = absl::ZeroDuration()});
  WaitWatch watch(running, flights_);
  EXPECT_EQ(watch.Check(late_), absl::OkStatus());
  ::testing::internal::GetCapturedStderr();
  const std::optional<FlightEvent> last = flights_.Of(0).Last();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->kind, FlightKind::kWaiting);
  EXPECT_EQ(last->op, OpType::kAlltoall);
  EXPECT_EQ(last->name, "tokens");
}

TEST_F(WaitWatchTest, GivesUpAtTheDeadlineWithWhatTheLateRankDidLast) {
  flights_.Of(1).Record(FlightKind::kStarted, OpType::kAllreduce, "conv1", 8);
  const RunningCollective running = WithLimits({.deadline = absl::ZeroDuration()});
  WaitWatch watch(running, flights_);
  const absl::Status status = watch.Check(late_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "waited 0 for rank 1 (host node7, pid 42) in alltoall 'tokens', 1024 of 4096 bytes "
                                "done; rank 1 did last, "))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "started allreduce 'conv1'")) << status;
}

TEST_F(WaitWatchTest, InfiniteLimitsAreNeverReached) {
  const RunningCollective running =
      WithLimits({.warning = absl::InfiniteDuration(), .deadline = absl::InfiniteDuration()});
  WaitWatch watch(running, flights_);
  EXPECT_EQ(watch.Check(late_), absl::OkStatus());
  EXPECT_EQ(watch.UntilNextCheck(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace ronda
