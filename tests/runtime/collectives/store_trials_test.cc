// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "runtime/collectives/shm/stream_writer.h"

namespace ronda {
namespace {

// Two cores, with the cost of moving a byte between them for each kind of store (through the cache, or past it).
struct Cores {
  double through_cache = 0;
  double past_cache = 0;
};
constexpr Cores kNear = {.through_cache = 0.05, .past_cache = 0.09};
constexpr Cores kFar = {.through_cache = 0.5, .past_cache = 0.06};

// A job whose rank 0 writes its data around the ring again and again. Each round is a lap.
class Job {
 public:
  explicit Job(absl::Duration lap_time) : lap_time_(lap_time) {}

  void RunLap(const Cores& cores) {
    const bool is_trial = StoreTrials::IsIn(trials_.trial(), lap_);
    if (is_trial && trials_.trial() == lap_) begins_.push_back(lap_);
    const Stores stores = is_trial ? Other(trials_.settled()) : trials_.settled();
    now_ += lap_time_;
    trials_.FinishLap(lap_++, stores == Stores::kThroughCache ? cores.through_cache : cores.past_cache, now_);
  }

  void Run(uint64_t laps, const Cores& cores) {
    for (uint64_t i = 0; i < laps; ++i) RunLap(cores);
  }

  // Runs laps until the kind `stores` is settled, and returns how many laps that took. A result above `most` means that
  // the kind was not settled.
  uint64_t LapsUntil(Stores stores, const Cores& cores, uint64_t most) {
    uint64_t laps = 0;
    while (trials_.settled() != stores && laps <= most) {
      RunLap(cores);
      ++laps;
    }
    return laps;
  }

  const StoreTrials& trials() const { return trials_; }
  const std::vector<uint64_t>& begins() const { return begins_; }

 private:
  const absl::Duration lap_time_;
  StoreTrials trials_;
  uint64_t lap_ = 0;
  absl::Duration now_ = absl::ZeroDuration();
  std::vector<uint64_t> begins_;
};

TEST(StoreTrialsTest, BeginAtPowersOfTwoAndThenEvery128Laps) {
  Job job(absl::Milliseconds(1));
  job.Run(520, kNear);
  EXPECT_EQ(job.begins(), (std::vector<uint64_t>{4, 8, 16, 32, 64, 128, 256, 384, 512}));
  EXPECT_EQ(job.trials().settled(), Stores::kThroughCache);
}

TEST(StoreTrialsTest, SettleOnTheFasterKindInTheFirstTrial) {
  Job job(absl::Milliseconds(1));
  EXPECT_LE(job.LapsUntil(Stores::kPastCache, kFar, 10), 6u);
}

TEST(StoreTrialsTest, KindsThatAreEqualDoNotAlternate) {
  Job job(absl::Milliseconds(1));
  for (int i = 0; i < 500; ++i) {
    job.RunLap({.through_cache = 0.1, .past_cache = 0.085});
    ASSERT_EQ(job.trials().settled(), Stores::kThroughCache);
  }
}

TEST(StoreTrialsTest, AKindThatHasBecomeSlowIsTriedAtOnceAgain) {
  Job job(absl::Milliseconds(1));
  job.Run(300, kNear);
  EXPECT_LE(job.LapsUntil(Stores::kPastCache, kFar, 200), 6u);
}

TEST(StoreTrialsTest, BothKindsBecomingSlowCostsFewTrials) {
  Job job(absl::Milliseconds(1));
  job.Run(300, kNear);
  const size_t before = job.begins().size();
  job.Run(100, {.through_cache = 0.5, .past_cache = 0.9});
  EXPECT_LE(job.begins().size(), before + 2);
  EXPECT_EQ(job.trials().settled(), Stores::kThroughCache);
}

TEST(StoreTrialsTest, ASlowJobTriesAgainAfterASecond) {
  Job job(absl::Milliseconds(100));
  job.Run(300, kFar);
  ASSERT_EQ(job.trials().settled(), Stores::kPastCache);
  // Stores past the cache are not slower than before, so no trial starts immediately. But stores through the cache have
  // become faster.
  EXPECT_LE(job.LapsUntil(Stores::kThroughCache, {.through_cache = 0.03, .past_cache = 0.06}, 200), 22u);
}

TEST(StoreTrialsTest, ATrialIsSetLapsBeforeItBegins) {
  Job job(absl::Milliseconds(1));
  std::set<uint64_t> seen;
  for (uint64_t lap = 0; lap < 1000; ++lap) {
    if (seen.insert(job.trials().trial()).second) {
      EXPECT_GE(job.trials().trial(), lap + 2);
    }
    job.RunLap(lap % 200 < 100 ? kNear : kFar);
  }
}

}  // namespace
}  // namespace ronda
