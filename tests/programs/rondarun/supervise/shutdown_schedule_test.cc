// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/shutdown_schedule.h"

#include <csignal>
#include <optional>

#include "gtest/gtest.h"

namespace ronda {
namespace {

using Phase = ShutdownSchedule::Phase;

constexpr absl::Duration kSettle = absl::Seconds(1);
constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr absl::Duration kMoment = absl::Milliseconds(1);

class ShutdownScheduleTest : public ::testing::Test {
 protected:
  const absl::Time start_ = absl::FromUnixSeconds(1000);
  ShutdownSchedule schedule_{{.settle = kSettle, .grace = kGrace}};
};

TEST_F(ShutdownScheduleTest, RunningJobHasNoDeadline) {
  EXPECT_EQ(schedule_.deadline(), absl::InfiniteFuture());
  EXPECT_EQ(schedule_.Due(start_ + absl::Hours(1000)), std::nullopt);
  EXPECT_EQ(schedule_.phase(), Phase::kRunning);
}

TEST_F(ShutdownScheduleTest, AfterAFailureRanksSettleThenEndThenDie) {
  schedule_.OnFailure(start_);
  EXPECT_EQ(schedule_.deadline(), start_ + kSettle);
  EXPECT_EQ(schedule_.Due(start_ + kSettle - kMoment), std::nullopt);
  EXPECT_EQ(schedule_.Due(start_ + kSettle), SIGTERM);
  EXPECT_EQ(schedule_.deadline(), start_ + kSettle + kGrace);
  EXPECT_EQ(schedule_.Due(start_ + kSettle + kGrace - kMoment), std::nullopt);
  EXPECT_EQ(schedule_.Due(start_ + kSettle + kGrace), SIGKILL);
  EXPECT_EQ(schedule_.deadline(), absl::InfiniteFuture());
  EXPECT_EQ(schedule_.Due(start_ + absl::Hours(1)), std::nullopt);
}

TEST_F(ShutdownScheduleTest, LaterFailuresDoNotPutOffTheEnd) {
  schedule_.OnFailure(start_);
  schedule_.OnFailure(start_ + kSettle / 2);
  EXPECT_EQ(schedule_.deadline(), start_ + kSettle);
}

TEST_F(ShutdownScheduleTest, SignalIsPassedOnAtOnceAndKillsAfterTheGracePeriod) {
  EXPECT_EQ(schedule_.OnUserSignal(SIGHUP, start_), SIGHUP);
  EXPECT_EQ(schedule_.Due(start_ + kGrace - kMoment), std::nullopt);
  EXPECT_EQ(schedule_.Due(start_ + kGrace), SIGKILL);
}

TEST_F(ShutdownScheduleTest, SecondInterruptKillsAtOnce) {
  EXPECT_EQ(schedule_.OnUserSignal(SIGINT, start_), SIGINT);
  EXPECT_EQ(schedule_.OnUserSignal(SIGINT, start_ + kMoment), SIGKILL);
  EXPECT_EQ(schedule_.phase(), Phase::kKilled);
  EXPECT_EQ(schedule_.OnUserSignal(SIGINT, start_ + kMoment), std::nullopt);
}

TEST_F(ShutdownScheduleTest, OtherSecondSignalsChangeNothing) {
  EXPECT_EQ(schedule_.OnUserSignal(SIGTERM, start_), SIGTERM);
  EXPECT_EQ(schedule_.OnUserSignal(SIGHUP, start_ + kMoment), std::nullopt);
  EXPECT_EQ(schedule_.deadline(), start_ + kGrace);
}

TEST_F(ShutdownScheduleTest, SignalCutsTheSettlingShort) {
  schedule_.OnFailure(start_);
  EXPECT_EQ(schedule_.OnUserSignal(SIGINT, start_ + kMoment), SIGINT);
  EXPECT_EQ(schedule_.deadline(), start_ + kMoment + kGrace);
}

TEST_F(ShutdownScheduleTest, JobThatIsGivenUpEndsAtOnceAndIsKilledAfterTheGracePeriod) {
  EXPECT_EQ(schedule_.OnGiveUp(start_), SIGTERM);
  EXPECT_EQ(schedule_.phase(), Phase::kTerminating);
  schedule_.OnFailure(start_ + kMoment);
  EXPECT_EQ(schedule_.Due(start_ + kGrace - kMoment), std::nullopt);
  EXPECT_EQ(schedule_.Due(start_ + kGrace), SIGKILL);
}

TEST_F(ShutdownScheduleTest, AbandonedJobIsKilledOnce) {
  EXPECT_EQ(schedule_.OnAbandon(), SIGKILL);
  schedule_.OnFailure(start_);
  EXPECT_EQ(schedule_.Due(start_ + absl::Hours(1)), std::nullopt);
}

}  // namespace
}  // namespace ronda
