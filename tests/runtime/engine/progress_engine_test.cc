// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/progress_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/clock.h"
#include "tests/testing/fakes.h"

namespace ronda {
namespace {

const absl::Time kSoon = absl::UnixEpoch();
const absl::Time kLater = absl::UnixEpoch() + absl::Seconds(1);

// Work for the engine that consists of a number of steps.
class FakeSteps : public ProgressEngine::Steps {
 public:
  Progress Advance() override {
    if (hold != nullptr) hold->wait();
    if (during) std::exchange(during, nullptr)();
    if (left == 0) return then;
    --left;
    return Progress::kSome;
  }
  Progress OnSubmission(absl::Time) override {
    ++processed;
    return submissions_travel ? Progress::kSome : then;
  }
  absl::Time NextDeadline() override { return left > 0 ? absl::InfinitePast() : deadline; }
  void Wake() override { ++rung; }
  bool StartPolling() override {
    polling = polls_left > 0;
    return polling;
  }
  bool KeepPolling() override {
    EXPECT_TRUE(polling);
    if (--polls_left == arrives_at) left = 1;
    return polls_left > 0;
  }
  void StopPolling() override {
    EXPECT_TRUE(polling);
    polling = false;
  }

  std::atomic<int> left{0};
  Progress then = Progress::kNone;
  absl::Time deadline = absl::InfiniteFuture();
  std::atomic<int> rung{0};
  int processed = 0;
  bool submissions_travel = false;  // with what is submitted next
  int polls_left = 0;               // how often a polling thread looks
  int arrives_at = -1;              // the number of looks that are left when a step arrives
  bool polling = false;
  std::latch* hold = nullptr;
  std::function<void()> during;  // called during the next step
};

class ProgressEngineTest : public ::testing::Test {
 protected:
  ProgressEngineTest() { progress_.Connect(&steps_); }

  bool AllDone() const { return steps_.left == 0; }

  // Submits a tensor that needs one step, and waits for it.
  void SubmitAndWait() {
    steps_.left = 1;
    progress_.OnSubmission(clock_.Now());
    progress_.Await([&] { return AllDone(); }, [] { ADD_FAILURE() << "blocks"; });
  }

  // Submits ten tensors, and waits for each of them right after submitting it. From then on, the engine expects the
  // program to do so.
  void WaitAtOnceRepeatedly() {
    for (int i = 0; i < 10; ++i) SubmitAndWait();
    progress_.DriveUntilIdle();
    steps_.rung = 0;
  }

  testing::FakeClock clock_;
  FakeSteps steps_;
  ProgressEngine progress_{&clock_};
};

TEST_F(ProgressEngineTest, TimeInWhichThreadsWaitIsMeasuredOnce) {
  progress_.Await([] { return true; }, [] {});
  EXPECT_EQ(progress_.exposed_ticks(), 0u) << "there was nothing to wait for";
  std::atomic<bool> is_done{false};
  std::atomic<int> blocked{0};
  const uint64_t begin = CheapTicks();
  const auto wait = [&] {
    progress_.Await([&] { return is_done.load(); },
                    [&] {
                      ++blocked;
                      is_done.wait(false);
                    });
  };
  std::thread other(wait), third(wait);
  while (blocked < 2) std::this_thread::yield();
  const uint64_t first = CheapTicks();
  while (CheapTicks() - first < 1'000'000) std::this_thread::yield();
  const uint64_t last = CheapTicks();
  is_done = true;
  is_done.notify_all();
  other.join();
  third.join();
  EXPECT_GE(progress_.exposed_ticks(), last - first);
  EXPECT_LE(progress_.exposed_ticks(), CheapTicks() - begin) << "both have waited in the same time";
}

TEST_F(ProgressEngineTest, BackgroundThreadDoesAllThereIsAndSleeps) {
  steps_.left = 3;
  steps_.deadline = kSoon;
  EXPECT_EQ(progress_.DriveUntilIdle(), kSoon);
  EXPECT_EQ(steps_.left, 0);
}

TEST_F(ProgressEngineTest, ThereIsNothingToComeForWhenTheJobIsOver) {
  steps_.then = FakeSteps::Progress::kOver;
  EXPECT_EQ(progress_.DriveUntilIdle(), std::nullopt);
  EXPECT_EQ(progress_.DriveUntilIdle(), std::nullopt);
}

TEST_F(ProgressEngineTest, WaiterStopsWhenItsOwnIsDoneAndHasTheRestDone) {
  progress_.DriveUntilIdle();
  steps_.left = 3;
  EXPECT_EQ(progress_.Drive([&] { return steps_.left == 2; }), ProgressEngine::Attempt::kDriven);
  EXPECT_EQ(steps_.left, 2);
  EXPECT_EQ(steps_.rung, 1) << "for the rest";
}

TEST_F(ProgressEngineTest, NoThreadIsWokenIfNothingIsLeft) {
  progress_.DriveUntilIdle();
  steps_.left = 3;
  progress_.Drive([&] { return AllDone(); });
  EXPECT_EQ(steps_.rung, 0);
}

TEST_F(ProgressEngineTest, WaiterWakesForAnEarlierDeadlineAlone) {
  steps_.deadline = kLater;
  progress_.DriveUntilIdle();
  progress_.Drive([] { return false; });
  EXPECT_EQ(steps_.rung, 0);
  steps_.deadline = kSoon;
  progress_.Drive([] { return false; });
  EXPECT_EQ(steps_.rung, 1);
  progress_.Drive([] { return false; });
  EXPECT_EQ(steps_.rung, 1) << "it is bound to come";
}

TEST_F(ProgressEngineTest, WaiterThatSeesTheEndTellsTheBackgroundThread) {
  progress_.DriveUntilIdle();
  steps_.then = FakeSteps::Progress::kOver;
  progress_.Drive([] { return false; });
  EXPECT_EQ(steps_.rung, 1);
  EXPECT_EQ(progress_.DriveUntilIdle(), std::nullopt);
}

TEST_F(ProgressEngineTest, SubmissionWakesOnlyIfThereIsSomethingToDo) {
  progress_.DriveUntilIdle();
  EXPECT_EQ(progress_.OnSubmission(absl::UnixEpoch()), ProgressEngine::Attempt::kDriven);
  EXPECT_EQ(steps_.processed, 1);
  EXPECT_EQ(steps_.rung, 0);
  steps_.left = 1;
  progress_.OnSubmission(absl::UnixEpoch());
  EXPECT_EQ(steps_.rung, 1);
  EXPECT_EQ(steps_.left, 1) << "left to the background thread";
  progress_.OnSubmission(absl::UnixEpoch());
  EXPECT_EQ(steps_.rung, 1) << "it is bound to come";
}

TEST_F(ProgressEngineTest, WaiterPollsForWorkThatIsToCome) {
  steps_.polls_left = 5;
  steps_.arrives_at = 2;
  progress_.DriveUntilIdle();
  progress_.Drive([&] { return steps_.polls_left <= steps_.arrives_at && AllDone(); });
  EXPECT_EQ(steps_.left, 0);
  EXPECT_EQ(steps_.polls_left, 2) << "no look after the end";
  EXPECT_FALSE(steps_.polling);
  EXPECT_EQ(steps_.rung, 0);
}

TEST_F(ProgressEngineTest, WaiterPollsNoLongerThanItMay) {
  steps_.polls_left = 3;
  progress_.DriveUntilIdle();
  progress_.Drive([] { return false; });
  EXPECT_EQ(steps_.polls_left, 0);
  EXPECT_FALSE(steps_.polling);
}

TEST_F(ProgressEngineTest, OnlyOneThreadDrives) {
  std::latch hold(1);
  steps_.hold = &hold;
  steps_.left = 1;
  std::atomic<bool> driving{false};
  std::thread other([&] {
    progress_.Drive([&] {
      driving = true;
      return AllDone();
    });
  });
  while (!driving) std::this_thread::yield();
  EXPECT_EQ(progress_.Drive([] { return false; }), ProgressEngine::Attempt::kBusy);
  EXPECT_EQ(progress_.OnSubmission(absl::UnixEpoch()), ProgressEngine::Attempt::kBusy);
  hold.count_down();
  other.join();
}

TEST_F(ProgressEngineTest, NoteLeftDuringTheLastStepRings) {
  progress_.DriveUntilIdle();
  steps_.left = 1;
  std::optional<absl::Time> sleeps_until;
  steps_.during = [&] { std::thread([&] { sleeps_until = progress_.DriveUntilIdle(); }).join(); };
  progress_.Drive([&] { return AllDone(); });
  EXPECT_GT(sleeps_until, clock_.Now());
  EXPECT_LE(sleeps_until, clock_.Now() + absl::Milliseconds(1));
  EXPECT_EQ(steps_.rung, 1) << "the step had begun before the background thread came";
}

TEST_F(ProgressEngineTest, BackgroundThreadSleepsDuringALongStep) {
  progress_.DriveUntilIdle();
  steps_.left = 1;
  steps_.during = [&] {
    std::thread([&] {
      EXPECT_LE(progress_.DriveUntilIdle(), clock_.Now() + absl::Milliseconds(1));
      for (int i = 0; i < 3; ++i) EXPECT_EQ(progress_.DriveUntilIdle(), absl::InfiniteFuture());
    }).join();
  };
  progress_.Drive([&] { return AllDone(); });
  EXPECT_EQ(steps_.rung, 1);
}

TEST_F(ProgressEngineTest, NoteLeftBeforeAStepDoesNotRing) {
  progress_.DriveUntilIdle();
  steps_.left = 1;
  bool came = false;
  progress_.Drive([&] {
    if (!std::exchange(came, true)) std::thread([&] { progress_.DriveUntilIdle(); }).join();
    return AllDone();
  });
  EXPECT_EQ(steps_.rung, 0) << "the step has done what it came for";
}

// While blocking calls quickly follow one another, the background thread must sleep. If each call woke it, it would
// find the next call already in progress each time.
TEST_F(ProgressEngineTest, BlockingCallsInARowLetTheBackgroundThreadSleep) {
  progress_.DriveUntilIdle();
  const auto call_and_meet_background_thread = [&] {
    steps_.left = 1;
    steps_.during = [&] { std::thread([&] { progress_.DriveUntilIdle(); }).join(); };
    progress_.Drive([&] { return AllDone(); });
  };
  call_and_meet_background_thread();
  EXPECT_EQ(steps_.rung, 1) << "the program may do something else now";
  // The two calls follow each other quickly, unless the system preempts this thread between them.
  for (int rung = 0; rung != steps_.rung;) {
    rung = steps_.rung;
    call_and_meet_background_thread();
  }
}

TEST_F(ProgressEngineTest, ProgramThatWaitsAtOnceIsLeftToItself) {
  SubmitAndWait();
  EXPECT_EQ(progress_.DriveUntilIdle(), absl::InfiniteFuture());
  SubmitAndWait();
  EXPECT_EQ(steps_.rung, 1) << "once is not often enough";
  WaitAtOnceRepeatedly();
  EXPECT_TRUE(progress_.expects_trainer());
  for (int i = 0; i < 3; ++i) SubmitAndWait();
  EXPECT_EQ(steps_.rung, 0);
}

TEST_F(ProgressEngineTest, BackgroundThreadSleepsBrieflyWhileTheProgramRuns) {
  WaitAtOnceRepeatedly();
  SubmitAndWait();
  const absl::Time wake = *progress_.DriveUntilIdle();
  EXPECT_GT(wake, clock_.Now());
  EXPECT_LE(wake, clock_.Now() + absl::Milliseconds(1));
  EXPECT_EQ(progress_.DriveUntilIdle(), absl::InfiniteFuture()) << "nothing was done meanwhile";
  SubmitAndWait();
  EXPECT_EQ(steps_.rung, 1) << "it sleeps for good";
}

TEST_F(ProgressEngineTest, TensorThatIsNotAwaitedAtOnceIsDoneAfterTheShortSleep) {
  WaitAtOnceRepeatedly();
  SubmitAndWait();
  progress_.DriveUntilIdle();
  steps_.left = 1;
  progress_.OnSubmission(clock_.Now());
  EXPECT_EQ(steps_.rung, 0);
  clock_.Advance(absl::Milliseconds(1));
  progress_.DriveUntilIdle();
  EXPECT_EQ(steps_.left, 0);
  EXPECT_FALSE(progress_.expects_trainer());
  steps_.left = 1;
  progress_.OnSubmission(clock_.Now());
  EXPECT_EQ(steps_.rung, 1) << "the program no longer waits at once";
}

TEST_F(ProgressEngineTest, SubmissionThatTravelsWithTheNextOneWakesNobodyAndSaysNothingOfTheProgram) {
  WaitAtOnceRepeatedly();
  for (int step = 0; step < 10; ++step) {
    steps_.submissions_travel = true;
    progress_.OnSubmission(clock_.Now());
    steps_.submissions_travel = false;
    clock_.Advance(absl::Milliseconds(1));
    SubmitAndWait();
  }
  EXPECT_EQ(steps_.rung, 0);
  EXPECT_TRUE(progress_.expects_trainer());
}

TEST_F(ProgressEngineTest, WaitingLateOrForSeveralTensorsIsNotWaitingAtOnce) {
  WaitAtOnceRepeatedly();
  progress_.OnSubmission(clock_.Now());
  SubmitAndWait();
  EXPECT_FALSE(progress_.expects_trainer());
  for (int i = 0; i < 10; ++i) {
    steps_.left = 1;
    progress_.OnSubmission(clock_.Now());
    clock_.Advance(absl::Milliseconds(1));
    progress_.Await([&] { return AllDone(); }, [] { ADD_FAILURE() << "blocks"; });
  }
  EXPECT_FALSE(progress_.expects_trainer());
}

TEST_F(ProgressEngineTest, DisconnectWaitsForTheThreadThatDrives) {
  std::latch hold(1);
  steps_.hold = &hold;
  steps_.left = 1;
  std::atomic<bool> driving{false};
  std::thread waiter([&] {
    progress_.Drive([&] {
      driving = true;
      return AllDone();
    });
  });
  while (!driving) std::this_thread::yield();
  std::thread owner([&] {
    progress_.Disconnect();
    EXPECT_EQ(steps_.left, 0);
  });
  hold.count_down();
  owner.join();
  waiter.join();
  steps_.left = 1;
  EXPECT_EQ(progress_.Drive([] { return false; }), ProgressEngine::Attempt::kDriven);
  EXPECT_EQ(steps_.left, 1) << "no thread drives any more";
}

TEST_F(ProgressEngineTest, AwaitDrivesFirstAndThenBlocks) {
  steps_.left = 2;
  bool blocked = false;
  progress_.Await([&] { return blocked; },
                  [&] {
                    EXPECT_EQ(progress_.waiting(), 1);
                    EXPECT_EQ(steps_.left, 0);
                    blocked = true;
                  });
  EXPECT_TRUE(blocked);
  EXPECT_EQ(progress_.waiting(), 0);
}

TEST_F(ProgressEngineTest, AwaitDoesNotBlockForWhatItHasDoneItself) {
  steps_.left = 2;
  progress_.Await([&] { return AllDone(); }, [] { ADD_FAILURE() << "blocks"; });
}

}  // namespace
}  // namespace ronda
