// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/straggler.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "absl/time/time.h"

namespace ronda {
namespace {

using Kind = StragglerVerdict::Kind;

constexpr absl::Duration kStep = absl::Milliseconds(100);
constexpr int kWindow = StragglerWatch::kWindowSteps;

// The last rank in a step, and how long the first rank waits for it.
struct Late {
  RankId rank = 0;
  absl::Duration waited;
};

// Ranks that make steps of two buckets, one step every 100 ms.
class Steps {
 public:
  explicit Steps(size_t ranks) : watch_(ranks) {}

  // The watch counts a step when the next one begins, so it counts the last step only in the next Run().
  void Run(int steps, const std::function<Late(int step)>& late) {
    for (int i = 0; i < steps; ++i, ++step_) {
      const Late one = late(i);
      const FlightTime begin = absl::Seconds(1000) + step_ * kStep;
      const auto step = static_cast<uint64_t>(step_);
      watch_.Add({.step = step, .first = begin, .last = one.rank, .waited = one.waited});
      watch_.Add({.step = step, .first = begin + one.waited + absl::Milliseconds(1), .last = 0});
    }
  }
  void Run(int steps, Late late) {
    Run(steps, [&](int) { return late; });
  }
  // Begins another step, so that all earlier ones count.
  StragglerVerdict Judge() {
    Run(1, Late{});
    return watch_.Judge();
  }
  void Skip() { watch_.Skip(); }

 private:
  StragglerWatch watch_;
  int step_ = 1;
};

TEST(StragglerWatchTest, RankThatIsLateForThreeWindowsIsChronic) {
  Steps steps(4);
  steps.Run(3 * kWindow, Late{.rank = 2, .waited = absl::Milliseconds(20)});
  const StragglerVerdict verdict = steps.Judge();
  EXPECT_EQ(verdict.kind, Kind::kChronic);
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_EQ(verdict.steps, 3 * kWindow);
  EXPECT_EQ(verdict.last_steps, 3 * kWindow);
  EXPECT_EQ(verdict.waited, 3 * kWindow * absl::Milliseconds(20));
  EXPECT_EQ(verdict.span, 3 * kWindow * kStep);
}

TEST(StragglerWatchTest, RankThatIsLateForLessIsNotChronicYet) {
  Steps steps(4);
  steps.Run(2 * kWindow, Late{.rank = 2, .waited = absl::Milliseconds(20)});
  EXPECT_EQ(steps.Judge().kind, Kind::kOneOff);
  Steps again(4);
  again.Run(2 * kWindow, Late{});
  again.Run(kWindow, Late{.rank = 2, .waited = absl::Milliseconds(20)});
  const StragglerVerdict verdict = again.Judge();
  EXPECT_EQ(verdict.kind, Kind::kOneOff);
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_EQ(verdict.steps, kWindow);
}

TEST(StragglerWatchTest, AnotherRankInTheMiddleWindowIsNotChronic) {
  Steps steps(4);
  for (const RankId rank : {2, 1, 2}) steps.Run(kWindow, Late{.rank = rank, .waited = absl::Milliseconds(20)});
  EXPECT_EQ(steps.Judge().kind, Kind::kOneOff);
}

TEST(StragglerWatchTest, LatenessThatIsOverIsNone) {
  Steps steps(4);
  steps.Run(3 * kWindow, Late{.rank = 2, .waited = absl::Milliseconds(20)});
  steps.Run(kWindow, Late{});
  EXPECT_EQ(steps.Judge().kind, Kind::kNone);
}

TEST(StragglerWatchTest, OneLongWaitIsAnEvent) {
  Steps steps(4);
  steps.Run(3 * kWindow,
            [](int step) { return step == 250 ? Late{.rank = 3, .waited = absl::Milliseconds(600)} : Late{}; });
  const StragglerVerdict verdict = steps.Judge();
  EXPECT_EQ(verdict.kind, Kind::kEvent);
  EXPECT_EQ(verdict.rank, 3);
  EXPECT_EQ(verdict.waited, absl::Milliseconds(600));
  EXPECT_EQ(verdict.since, absl::Seconds(1000) + 251 * kStep);
}

TEST(StragglerWatchTest, EventNeedsFiveStepsAlsoInAShortWindow) {
  for (const int milliseconds : {490, 510}) {
    Steps steps(4);
    steps.Run(
        30, [&](int step) { return step == 7 ? Late{.rank = 3, .waited = absl::Milliseconds(milliseconds)} : Late{}; });
    EXPECT_EQ(steps.Judge().kind, milliseconds > 500 ? Kind::kEvent : Kind::kNone) << milliseconds;
  }
}

TEST(StragglerWatchTest, RanksWhoseTimesVaryHaveNone) {
  // The ranks take turns at being late. With two ranks, each of them is last in half of the steps.
  for (const int ranks : {2, 4}) {
    Steps steps(static_cast<size_t>(ranks));
    steps.Run(3 * kWindow, [&](int step) { return Late{.rank = step % ranks, .waited = absl::Milliseconds(20)}; });
    EXPECT_EQ(steps.Judge().kind, Kind::kNone) << ranks << " ranks";
  }
}

TEST(StragglerWatchTest, HalfOfTheStepsAreEnough) {
  for (const int others : {0, 1}) {
    Steps steps(4);
    steps.Run(3 * kWindow, [&](int step) {
      return step % 2 < 1 - others * (step % 10 == 0) ? Late{.rank = 1, .waited = absl::Milliseconds(50)} : Late{};
    });
    EXPECT_EQ(steps.Judge().kind, others == 0 ? Kind::kChronic : Kind::kNone);
  }
}

TEST(StragglerWatchTest, LittleLatenessIsNone) {
  for (const int milliseconds : {4, 6}) {
    Steps steps(4);
    steps.Run(3 * kWindow, Late{.rank = 1, .waited = absl::Milliseconds(milliseconds)});
    EXPECT_EQ(steps.Judge().kind, milliseconds > 5 ? Kind::kChronic : Kind::kNone) << milliseconds << " % of the time";
  }
}

TEST(StragglerWatchTest, FewStepsTellNothing) {
  Steps steps(4);
  steps.Run(static_cast<int>(StragglerWatch::kFewestSteps) - 1, Late{.rank = 1, .waited = absl::Milliseconds(20)});
  EXPECT_EQ(steps.Judge().kind, Kind::kNone);  // the last of them ends here
  EXPECT_EQ(steps.Judge().kind, Kind::kOneOff);
}

TEST(StragglerWatchTest, StepThatMissesBucketsDoesNotCount) {
  Steps steps(4);
  steps.Run(20, Late{.rank = 1, .waited = absl::Milliseconds(20)});
  steps.Skip();
  EXPECT_EQ(steps.Judge().kind, Kind::kNone) << "19 steps have ended";
  EXPECT_EQ(steps.Judge().kind, Kind::kOneOff);
}

TEST(StragglerAlarmTest, ChronicStragglerIsSaidOnceAndAgainAfterAMinuteWithoutIt) {
  StragglerAlarm alarm;
  const StragglerVerdict chronic = {.kind = Kind::kChronic, .rank = 2};
  FlightTime now = absl::Seconds(100);
  EXPECT_FALSE(alarm.IsNews({.kind = Kind::kOneOff, .rank = 2}, now));
  EXPECT_TRUE(alarm.IsNews(chronic, now));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(alarm.IsNews(chronic, now += absl::Seconds(59)));
  EXPECT_TRUE(alarm.IsNews({.kind = Kind::kChronic, .rank = 1}, now));
  EXPECT_TRUE(alarm.IsNews(chronic, now + absl::Seconds(61)));
}

}  // namespace
}  // namespace ronda
