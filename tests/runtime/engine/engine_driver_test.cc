#include "runtime/engine/engine_driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <thread>

namespace ronda {
namespace {

const absl::Time kSoon = absl::UnixEpoch();
const absl::Time kLater = absl::UnixEpoch() + absl::Seconds(1);

// An engine with some steps to do.
class FakeEngine : public EngineDriver::Engine {
 public:
  Progress Advance() override {
    if (hold != nullptr) hold->wait();
    if (left == 0) return then;
    --left;
    return Progress::kSome;
  }
  Progress TakeNote(absl::Time) override {
    ++noted;
    return then;
  }
  absl::Time NextDeadline() override { return left > 0 ? absl::InfinitePast() : deadline; }
  void Wake() override { ++rung; }

  std::atomic<int> left{0};
  Progress then = Progress::kNone;
  absl::Time deadline = absl::InfiniteFuture();
  std::atomic<int> rung{0};
  int noted = 0;
  std::latch* hold = nullptr;
};

class EngineDriverTest : public ::testing::Test {
 protected:
  EngineDriverTest() { driver_.Connect(&engine_); }

  bool AllDone() const { return engine_.left == 0; }

  FakeEngine engine_;
  EngineDriver driver_;
};

TEST_F(EngineDriverTest, CoordinatorThreadDoesAllThereIsAndSleeps) {
  engine_.left = 3;
  engine_.deadline = kSoon;
  EXPECT_EQ(driver_.DriveUntilIdle(), kSoon);
  EXPECT_EQ(engine_.left, 0);
}

TEST_F(EngineDriverTest, ThereIsNothingToComeForWhenTheJobIsOver) {
  engine_.then = FakeEngine::Progress::kOver;
  EXPECT_EQ(driver_.DriveUntilIdle(), std::nullopt);
  EXPECT_EQ(driver_.DriveUntilIdle(), std::nullopt);
}

TEST_F(EngineDriverTest, WaiterStopsWhenItsOwnIsDoneAndHasTheRestDone) {
  driver_.DriveUntilIdle();
  engine_.left = 3;
  EXPECT_EQ(driver_.Drive([&] { return engine_.left == 2; }), EngineDriver::Turn::kTaken);
  EXPECT_EQ(engine_.left, 2);
  EXPECT_EQ(engine_.rung, 1) << "for what is left";
}

TEST_F(EngineDriverTest, NobodyIsWokenIfNothingIsLeft) {
  driver_.DriveUntilIdle();
  engine_.left = 3;
  driver_.Drive([&] { return AllDone(); });
  EXPECT_EQ(engine_.rung, 0);
}

TEST_F(EngineDriverTest, WaiterWakesForAnEarlierDeadlineAlone) {
  engine_.deadline = kLater;
  driver_.DriveUntilIdle();
  driver_.Drive([] { return false; });
  EXPECT_EQ(engine_.rung, 0);
  engine_.deadline = kSoon;
  driver_.Drive([] { return false; });
  EXPECT_EQ(engine_.rung, 1);
  driver_.Drive([] { return false; });
  EXPECT_EQ(engine_.rung, 1) << "it is bound to come";
}

TEST_F(EngineDriverTest, WaiterThatSeesTheEndTellsTheCoordinatorThread) {
  driver_.DriveUntilIdle();
  engine_.then = FakeEngine::Progress::kOver;
  driver_.Drive([] { return false; });
  EXPECT_EQ(engine_.rung, 1);
  EXPECT_EQ(driver_.DriveUntilIdle(), std::nullopt);
}

TEST_F(EngineDriverTest, SubmissionWakesOnlyIfThereIsSomethingToDo) {
  driver_.DriveUntilIdle();
  EXPECT_EQ(driver_.TakeNote(absl::UnixEpoch()), EngineDriver::Turn::kTaken);
  EXPECT_EQ(engine_.noted, 1);
  EXPECT_EQ(engine_.rung, 0);
  engine_.left = 1;
  driver_.TakeNote(absl::UnixEpoch());
  EXPECT_EQ(engine_.rung, 1);
  EXPECT_EQ(engine_.left, 1) << "the coordinator thread's";
  driver_.TakeNote(absl::UnixEpoch());
  EXPECT_EQ(engine_.rung, 1) << "it is bound to come";
}

TEST_F(EngineDriverTest, OnlyOneThreadHasTheTurn) {
  std::latch hold(1);
  engine_.hold = &hold;
  engine_.left = 1;
  std::atomic<bool> driving{false};
  std::thread other([&] {
    driver_.Drive([&] {
      driving = true;
      return AllDone();
    });
  });
  while (!driving) std::this_thread::yield();
  EXPECT_EQ(driver_.Drive([] { return false; }), EngineDriver::Turn::kBusy);
  EXPECT_EQ(driver_.TakeNote(absl::UnixEpoch()), EngineDriver::Turn::kBusy);
  hold.count_down();
  other.join();
}

TEST_F(EngineDriverTest, DisconnectWaitsForWhoDrives) {
  std::latch hold(1);
  engine_.hold = &hold;
  engine_.left = 1;
  std::atomic<bool> driving{false};
  std::thread waiter([&] {
    driver_.Drive([&] {
      driving = true;
      return AllDone();
    });
  });
  while (!driving) std::this_thread::yield();
  std::thread owner([&] {
    driver_.Disconnect();
    EXPECT_EQ(engine_.left, 0);
  });
  hold.count_down();
  owner.join();
  waiter.join();
  engine_.left = 1;
  EXPECT_EQ(driver_.Drive([] { return false; }), EngineDriver::Turn::kTaken);
  EXPECT_EQ(engine_.left, 1) << "nobody drives any more";
}

TEST_F(EngineDriverTest, AwaitDrivesFirstAndThenBlocks) {
  engine_.left = 2;
  bool blocked = false;
  driver_.Await([&] { return blocked; },
                [&] {
                  EXPECT_EQ(driver_.waiting(), 1);
                  EXPECT_EQ(engine_.left, 0);
                  blocked = true;
                });
  EXPECT_TRUE(blocked);
  EXPECT_EQ(driver_.waiting(), 0);
}

TEST_F(EngineDriverTest, AwaitDoesNotBlockForWhatItHasDoneItself) {
  engine_.left = 2;
  driver_.Await([&] { return AllDone(); }, [] { ADD_FAILURE() << "blocks"; });
}

}  // namespace
}  // namespace ronda
