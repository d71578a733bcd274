// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/locked_schedule.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace ronda {
namespace {

using Result = Ballot::Result;
using State = LockedSchedule::State;

constexpr absl::Time kStart = absl::UnixEpoch();

// Returns a schedule of two buckets: tensors 1 and 2, then tensor 3.
LockedSchedule TwoBuckets(uint64_t number = 7) {
  LockedSchedule schedule;
  schedule.Begin({.number = number, .buckets = {{1, 2}, {3}}}, kStart);
  return schedule;
}

void CarryOut(LockedSchedule& schedule) { schedule.Enter(Result::kCarriedOut, kStart); }

TEST(LockedSchedule, BucketIsEnteredOnceAllOfItsTensorsAreSubmitted) {
  LockedSchedule schedule = TwoBuckets();
  EXPECT_EQ(schedule.number(), 7u);
  EXPECT_EQ(schedule.Next(), std::nullopt);
  schedule.Submit(2);
  EXPECT_EQ(schedule.Next(), std::nullopt);
  schedule.Submit(1);
  EXPECT_EQ(schedule.Next(), 0u);
}

TEST(LockedSchedule, BucketsComeInTheOrderOfTheScheduleWhateverIsSubmittedFirst) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(3);
  EXPECT_EQ(schedule.Next(), std::nullopt);
  EXPECT_EQ(schedule.submitted(), 1u);
  schedule.Submit(1);
  schedule.Submit(2);
  EXPECT_EQ(schedule.Next(), 0u);
  CarryOut(schedule);
  EXPECT_EQ(schedule.Next(), 1u);
  EXPECT_EQ(schedule.submitted(), 1u);
  CarryOut(schedule);
  EXPECT_EQ(schedule.submitted(), 0u);
}

TEST(LockedSchedule, TensorMayBeSubmittedAgainByItsPlace) {
  LockedSchedule schedule = TwoBuckets();
  std::vector<StepPlace> places;
  for (CacheId id : {1, 2, 3}) {
    const auto place = schedule.Submit(id);
    ASSERT_TRUE(place.has_value());
    places.push_back(*place);
  }
  EXPECT_EQ(places[1].bucket, 0u);
  EXPECT_EQ(places[1].tensor, 1u);
  EXPECT_EQ(places[2].bucket, 1u);
  EXPECT_EQ(places[2].tensor, 0u);
  CarryOut(schedule);
  CarryOut(schedule);
  for (const StepPlace& place : places) EXPECT_TRUE(schedule.SubmitAgain(place, place.version));
  EXPECT_EQ(schedule.submitted(), 3u);
  EXPECT_EQ(schedule.Next(), 0u);
}

TEST(LockedSchedule, PlaceIsGoodForOneScheduleAndOneVersionOfTheRequest) {
  LockedSchedule schedule = TwoBuckets(7);
  StepPlace place = *schedule.Submit(3);
  place.version = 5;
  EXPECT_FALSE(schedule.SubmitAgain(place, 6)) << "the request has changed";
  EXPECT_FALSE(TwoBuckets(8).SubmitAgain(place, 5)) << "another schedule";
  EXPECT_FALSE(LockedSchedule().SubmitAgain(place, 5)) << "no schedule";
  EXPECT_FALSE(TwoBuckets(7).SubmitAgain(StepPlace(), 0)) << "the tensor has no place yet";
  EXPECT_EQ(schedule.submitted(), 1u);
  EXPECT_FALSE(schedule.unlocking()) << "the caller looks the tensor up";
}

TEST(LockedSchedule, GoesRound) {
  LockedSchedule schedule = TwoBuckets();
  for (CacheId id : {1, 2, 3}) schedule.Submit(id);
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(schedule.progress().rounds, round);
    EXPECT_EQ(schedule.Next(), 0u);
    CarryOut(schedule);
    // The submissions in the loop belong to the next round, because their bucket has already been carried out in this
    // round.
    for (CacheId id : {1, 2}) schedule.Submit(id);
    EXPECT_EQ(schedule.Next(), 1u);
    EXPECT_EQ(schedule.progress().rounds, round);
    CarryOut(schedule);
    schedule.Submit(3);
  }
  EXPECT_EQ(schedule.progress().rounds, 3u);
}

TEST(LockedSchedule, RankThatWantsToUnlockEntersTheNextBucketWithoutItsTensors) {
  LockedSchedule schedule = TwoBuckets();
  EXPECT_EQ(schedule.state(), State::kFollowing);
  schedule.VetoNext();
  EXPECT_EQ(schedule.state(), State::kUnlocking);
  EXPECT_EQ(schedule.Next(), 0u);
}

TEST(LockedSchedule, VetoEndsIt) {
  for (const bool own : {false, true}) {
    LockedSchedule schedule = TwoBuckets();
    for (CacheId id : {1, 2, 3}) schedule.Submit(id);
    CarryOut(schedule);
    if (own) schedule.VetoNext();
    schedule.Enter(Result::kVetoed, kStart);
    EXPECT_EQ(schedule.Next(), std::nullopt);
    ASSERT_TRUE(schedule.HasToUnlock());
    EXPECT_EQ(schedule.Unlock(), own ? Ballot::Vote::kVeto : Ballot::Vote::kApprove);
    EXPECT_EQ(schedule.state(), State::kUnlocked);
    EXPECT_EQ(schedule.progress().rounds, 0u);
  }
}

TEST(LockedSchedule, AnotherMayBeginAfterwards) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(1);
  schedule.VetoNext();
  schedule.Enter(Result::kVetoed, kStart);
  schedule.Unlock();
  schedule.VetoNext();
  EXPECT_FALSE(schedule.locked()) << "there is nothing to unlock";
  schedule.Begin({.number = 8, .buckets = {{1}}}, kStart);
  EXPECT_EQ(schedule.state(), State::kFollowing);
  EXPECT_EQ(schedule.submitted(), 0u);
  EXPECT_EQ(schedule.Next(), std::nullopt);
  schedule.Submit(1);
  EXPECT_EQ(schedule.Next(), 0u);
  EXPECT_FALSE(schedule.unlocking());
}

TEST(LockedSchedule, TensorThatIsNotInTheScheduleIsACauseToUnlock) {
  for (const std::optional<CacheId> id : {std::optional<CacheId>(4), std::optional<CacheId>()}) {
    LockedSchedule schedule = TwoBuckets();
    schedule.Submit(1);
    EXPECT_FALSE(schedule.unlocking());
    EXPECT_FALSE(schedule.Submit(id).has_value());
    EXPECT_TRUE(schedule.unlocking());
    EXPECT_EQ(schedule.submitted(), 1u);
  }
}

TEST(LockedSchedule, UnlockIsRequestedOnceByEachRank) {
  LockedSchedule schedule = TwoBuckets(7);
  schedule.RecordUnlockRequest(6);
  EXPECT_FALSE(schedule.unlock_requested()) << "of an earlier schedule";
  EXPECT_TRUE(schedule.RequestUnlock());
  EXPECT_TRUE(schedule.unlock_requested());
  EXPECT_FALSE(schedule.RequestUnlock());
  LockedSchedule other = TwoBuckets(7);
  other.RecordUnlockRequest(7);
  EXPECT_FALSE(other.RequestUnlock()) << "the others know";
}

// --- Tensors that wait too long ---

constexpr LockedSchedule::Surroundings kBusy = {.has_submissions = true};
constexpr LockedSchedule::Surroundings kAwaited = {.has_submissions = true, .is_awaited = true};

TEST(LockedScheduleWaits, EndAfterASecondIfNoThreadWaits) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(1);
  schedule.CheckWaits(kBusy, kStart);
  EXPECT_EQ(schedule.next_look(), kStart + absl::Seconds(1));
  schedule.CheckWaits(kBusy, kStart + absl::Milliseconds(999));
  EXPECT_FALSE(schedule.unlocking());
  schedule.CheckWaits(kBusy, kStart + absl::Seconds(1));
  EXPECT_TRUE(schedule.unlocking());
}

TEST(LockedScheduleWaits, EndSoonIfAThreadWaits) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(1);
  schedule.CheckWaits(kAwaited, kStart);
  EXPECT_EQ(schedule.next_look(), kStart + LockedSchedule::kAwaitedLimit);
  schedule.CheckWaits(kAwaited, kStart + absl::Milliseconds(19));
  EXPECT_FALSE(schedule.unlocking());
  schedule.CheckWaits(kAwaited, kStart + absl::Milliseconds(20));
  EXPECT_TRUE(schedule.unlocking());
}

TEST(LockedScheduleWaits, BeginAnewWithEachBucketAndWhenNothingIsInFlight) {
  LockedSchedule schedule = TwoBuckets();
  absl::Time now = kStart;
  for (int round = 0; round < 4; ++round) {
    schedule.Submit(3);
    schedule.CheckWaits(kBusy, now);
    schedule.Submit(1);
    schedule.Submit(2);
    now += absl::Milliseconds(600);
    for (int bucket = 0; bucket < 2; ++bucket) schedule.Enter(Result::kCarriedOut, now);
  }
  schedule.Submit(1);
  schedule.CheckWaits(kBusy, now);
  schedule.CheckWaits({}, now + absl::Milliseconds(900));
  schedule.CheckWaits(kBusy, now + absl::Milliseconds(1100));
  EXPECT_FALSE(schedule.unlocking());
}

TEST(LockedScheduleWaits, DoNotEndWhileABucketIsReady) {
  LockedSchedule ready = TwoBuckets();
  ready.CheckWaits(kBusy, kStart);
  for (CacheId id : {1, 2}) ready.Submit(id);
  ready.CheckWaits(kAwaited, kStart + absl::Seconds(2));
  EXPECT_FALSE(ready.unlocking());
}

TEST(LockedScheduleWaits, EndIfThreadsWaitForEachOtherInEveryRound) {
  LockedSchedule schedule = TwoBuckets();
  absl::Time now = kStart;
  int rounds = 0;
  while (!schedule.unlocking() && rounds < 100) {
    schedule.Submit(3);
    schedule.CheckWaits(kAwaited, now);
    now += absl::Milliseconds(10);  // until the other thread submits
    for (CacheId id : {1, 2}) schedule.Submit(id);
    for (int bucket = 0; bucket < 2; ++bucket) schedule.Enter(Result::kCarriedOut, now);
    schedule.CheckWaits(kAwaited, now);
    ++rounds;
  }
  EXPECT_EQ(rounds, 3) << "more than 20 ms, and more than half of the time";
}

// --- Bugs ---

TEST(LockedScheduleDeathTest, BucketThatThisRankHasVetoedIsNotCarriedOut) {
  LockedSchedule schedule = TwoBuckets();
  schedule.VetoNext();
  EXPECT_DEATH(CarryOut(schedule), "unlocking");
}

TEST(LockedScheduleDeathTest, TensorSubmittedTwiceIsABug) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(3);
  EXPECT_DEATH(schedule.Submit(3), "missing > 0");
}

TEST(LockedScheduleDeathTest, BucketWithoutItsTensorsCannotBeEntered) {
  LockedSchedule schedule = TwoBuckets();
  EXPECT_DEATH(CarryOut(schedule), "missing == 0");
}

TEST(LockedScheduleDeathTest, AllRanksUnlockWhereAVoteWasLost) {
  LockedSchedule schedule = TwoBuckets();
  EXPECT_DEATH(schedule.Unlock(), "HasToUnlock");
}

}  // namespace
}  // namespace ronda
