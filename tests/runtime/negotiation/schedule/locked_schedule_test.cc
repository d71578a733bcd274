// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/locked_schedule.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace ronda {
namespace {

using Outcome = LockedSchedule::Outcome;
using State = LockedSchedule::State;

constexpr absl::Time kStart = absl::UnixEpoch();

// Returns a schedule of two buckets: tensors 1 and 2, then tensor 3.
LockedSchedule TwoBuckets(uint64_t number = 7) {
  const auto tensor = [](const std::string& name) {
    return std::make_shared<const Response>(Response{{.name = name}, {}});
  };
  LockedSchedule schedule;
  schedule.Begin({.schedule = {.number = number, .buckets = {{1, 2}, {3}}},
                  .buckets = {{.responses = {tensor("a"), tensor("b")}}, {.responses = {tensor("c")}}}},
                 kStart);
  return schedule;
}

std::string NextOf(const LockedSchedule& schedule) {
  return schedule.Next() == nullptr ? "none" : schedule.Next()->responses.front()->request.name;
}

void CarryOut(LockedSchedule& schedule) { schedule.Enter(Outcome::kCarriedOut, kStart); }

TEST(LockedSchedule, BucketIsEnteredOnceAllOfItsTensorsAreSubmitted) {
  LockedSchedule schedule = TwoBuckets();
  EXPECT_EQ(schedule.number(), 7u);
  EXPECT_EQ(schedule.Next(), nullptr);
  schedule.Submit(2);
  EXPECT_EQ(schedule.Next(), nullptr);
  schedule.Submit(1);
  EXPECT_EQ(NextOf(schedule), "a");
}

TEST(LockedSchedule, BucketsComeInTheOrderOfTheScheduleWhateverIsSubmittedFirst) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(3);
  EXPECT_EQ(schedule.Next(), nullptr);
  EXPECT_EQ(schedule.submitted(), 1u);
  schedule.Submit(1);
  schedule.Submit(2);
  EXPECT_EQ(NextOf(schedule), "a");
  CarryOut(schedule);
  EXPECT_EQ(NextOf(schedule), "c");
  EXPECT_EQ(schedule.submitted(), 1u);
  CarryOut(schedule);
  EXPECT_EQ(schedule.submitted(), 0u);
}

TEST(LockedSchedule, TensorMayBeSubmittedAgainByItsPosition) {
  LockedSchedule schedule = TwoBuckets();
  std::vector<LockedSchedule::Position> positions;
  for (CacheId id : {1, 2, 3}) {
    const auto position = schedule.Submit(id);
    ASSERT_TRUE(position.has_value());
    positions.push_back(*position);
  }
  EXPECT_EQ(positions[1].bucket, 0u);
  EXPECT_EQ(positions[1].tensor, 1u);
  EXPECT_EQ(positions[2].bucket, 1u);
  EXPECT_EQ(positions[2].tensor, 0u);
  EXPECT_EQ(schedule.next_bucket(), 0u);
  CarryOut(schedule);
  EXPECT_EQ(schedule.next_bucket(), 1u);
  CarryOut(schedule);
  for (const LockedSchedule::Position position : positions) schedule.SubmitAgain(position);
  EXPECT_EQ(schedule.submitted(), 3u);
  EXPECT_EQ(NextOf(schedule), "a");
}

TEST(LockedSchedule, GoesRound) {
  LockedSchedule schedule = TwoBuckets();
  for (CacheId id : {1, 2, 3}) schedule.Submit(id);
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(schedule.progress().rounds, round);
    EXPECT_EQ(NextOf(schedule), "a");
    CarryOut(schedule);
    // These submissions belong to the next round, because their bucket has been carried out.
    for (CacheId id : {1, 2}) schedule.Submit(id);
    EXPECT_EQ(NextOf(schedule), "c");
    EXPECT_EQ(schedule.progress().rounds, round);
    CarryOut(schedule);
    schedule.Submit(3);
  }
  EXPECT_EQ(schedule.progress().rounds, 3u);
}

TEST(LockedSchedule, RankThatWantsToUnlockEntersTheNextBucketWithoutItsTensors) {
  LockedSchedule schedule = TwoBuckets();
  EXPECT_EQ(schedule.state(), State::kFollowing);
  schedule.RequestUnlock();
  EXPECT_EQ(schedule.state(), State::kUnlocking);
  EXPECT_EQ(NextOf(schedule), "a");
}

TEST(LockedSchedule, VetoKnownAtOnceEndsIt) {
  for (const bool own : {false, true}) {
    LockedSchedule schedule = TwoBuckets();
    for (CacheId id : {1, 2, 3}) schedule.Submit(id);
    CarryOut(schedule);
    if (own) schedule.RequestUnlock();
    schedule.Enter(Outcome::kVetoed, kStart);
    EXPECT_EQ(schedule.Next(), nullptr);
    ASSERT_TRUE(schedule.HasToUnlock());
    EXPECT_EQ(schedule.Unlock(), own ? LockedSchedule::Cause::kOwn : LockedSchedule::Cause::kOthers);
    EXPECT_EQ(schedule.state(), State::kUnlocked);
    EXPECT_EQ(schedule.progress().rounds, 0u);
  }
}

TEST(LockedSchedule, RankThatWantsToUnlockGoesOnToBucketsThatNoRankCarriesOut) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(1);
  schedule.RequestUnlock();
  for (uint64_t bucket = 0; bucket < LockedSchedule::kOpenVotes; ++bucket) {
    EXPECT_EQ(NextOf(schedule), bucket % 2 == 0 ? "a" : "c");
    schedule.EnterOpen(kStart);
    if (bucket == 0) schedule.Submit(2);  // also in a vetoed bucket, a tensor is submitted only once
  }
  EXPECT_EQ(schedule.Next(), nullptr) << "the window is full";
  while (schedule.has_open()) {
    EXPECT_FALSE(schedule.HasToUnlock());
    schedule.Settle(Outcome::kVetoed);
  }
  EXPECT_TRUE(schedule.HasToUnlock());
  EXPECT_EQ(schedule.Unlock(), LockedSchedule::Cause::kOwn);
  EXPECT_EQ(schedule.progress().rounds, 0u);
}

TEST(LockedSchedule, RoundCountsWhenItsOpenVotesAreKnown) {
  LockedSchedule schedule = TwoBuckets();
  for (CacheId id : {1, 2, 3}) schedule.Submit(id);
  schedule.EnterOpen(kStart);
  schedule.EnterOpen(kStart + absl::Seconds(1));
  EXPECT_EQ(schedule.oldest_open_since(), kStart);
  schedule.Settle(Outcome::kCarriedOut);
  EXPECT_EQ(schedule.progress().rounds, 0u);
  EXPECT_EQ(schedule.oldest_open_since(), kStart + absl::Seconds(1));
  schedule.Settle(Outcome::kCarriedOut);
  EXPECT_EQ(schedule.progress().rounds, 1u);
}

TEST(LockedSchedule, FirstLostVoteSaysWhoseItWas) {
  LockedSchedule schedule = TwoBuckets();
  for (CacheId id : {1, 2, 3}) schedule.Submit(id);
  schedule.EnterOpen(kStart);
  schedule.RequestUnlock();
  schedule.EnterOpen(kStart);
  schedule.Settle(Outcome::kVetoed);
  schedule.Settle(Outcome::kVetoed);
  while (schedule.Next() != nullptr) schedule.EnterOpen(kStart);
  while (schedule.has_open()) schedule.Settle(Outcome::kVetoed);
  EXPECT_EQ(schedule.Unlock(), LockedSchedule::Cause::kOthers);
}

TEST(LockedSchedule, AnotherMayBeginAfterwards) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(1);
  schedule.RequestUnlock();
  schedule.Enter(Outcome::kVetoed, kStart);
  schedule.Unlock();
  schedule.RequestUnlock();
  EXPECT_FALSE(schedule.locked()) << "there is nothing to unlock";
  schedule.Begin(
      {.schedule = {.number = 8, .buckets = {{1}}}, .buckets = {{.responses = {std::make_shared<const Response>()}}}},
      kStart);
  EXPECT_EQ(schedule.state(), State::kFollowing);
  EXPECT_EQ(schedule.submitted(), 0u);
  EXPECT_EQ(schedule.Next(), nullptr);
  schedule.Submit(1);
  EXPECT_NE(schedule.Next(), nullptr);
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

TEST(LockedSchedule, IsCalledOffOnceByEachRank) {
  LockedSchedule schedule = TwoBuckets(7);
  schedule.NoteCallOff(6);
  EXPECT_FALSE(schedule.called_off()) << "an earlier one";
  EXPECT_TRUE(schedule.CallOff());
  EXPECT_TRUE(schedule.called_off());
  EXPECT_FALSE(schedule.CallOff());
  LockedSchedule other = TwoBuckets(7);
  other.NoteCallOff(7);
  EXPECT_FALSE(other.CallOff()) << "the others know";
}

// --- Patience ---

constexpr LockedSchedule::Surroundings kBusy = {.has_submissions = true};
constexpr LockedSchedule::Surroundings kAwaited = {.has_submissions = true, .is_awaited = true};

TEST(Patience, EndsAfterASecondIfNoThreadWaits) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(1);
  schedule.CheckPatience(kBusy, kStart);
  EXPECT_EQ(schedule.next_look(), kStart + absl::Seconds(1));
  schedule.CheckPatience(kBusy, kStart + absl::Milliseconds(999));
  EXPECT_FALSE(schedule.unlocking());
  schedule.CheckPatience(kBusy, kStart + absl::Seconds(1));
  EXPECT_TRUE(schedule.unlocking());
}

TEST(Patience, EndsSoonIfAThreadWaits) {
  LockedSchedule schedule = TwoBuckets();
  schedule.Submit(1);
  schedule.CheckPatience(kAwaited, kStart);
  EXPECT_EQ(schedule.next_look(), kStart + LockedSchedule::kPatienceOfWaiters);
  schedule.CheckPatience(kAwaited, kStart + absl::Milliseconds(19));
  EXPECT_FALSE(schedule.unlocking());
  schedule.CheckPatience(kAwaited, kStart + absl::Milliseconds(20));
  EXPECT_TRUE(schedule.unlocking());
}

TEST(Patience, BeginsAnewWithEachBucketAndWhenNothingIsInFlight) {
  LockedSchedule schedule = TwoBuckets();
  absl::Time now = kStart;
  for (int round = 0; round < 4; ++round) {
    schedule.Submit(3);
    schedule.CheckPatience(kBusy, now);
    schedule.Submit(1);
    schedule.Submit(2);
    now += absl::Milliseconds(600);
    for (int bucket = 0; bucket < 2; ++bucket) schedule.Enter(Outcome::kCarriedOut, now);
  }
  schedule.Submit(1);
  schedule.CheckPatience(kBusy, now);
  schedule.CheckPatience({}, now + absl::Milliseconds(900));
  schedule.CheckPatience(kBusy, now + absl::Milliseconds(1100));
  EXPECT_FALSE(schedule.unlocking());
}

TEST(Patience, DoesNotEndWhileABucketIsReadyOrAVoteIsOpen) {
  LockedSchedule ready = TwoBuckets();
  ready.CheckPatience(kBusy, kStart);
  for (CacheId id : {1, 2}) ready.Submit(id);
  ready.CheckPatience(kAwaited, kStart + absl::Seconds(2));
  EXPECT_FALSE(ready.unlocking());
  ready.EnterOpen(kStart + absl::Seconds(2));
  ready.CheckPatience(kAwaited, kStart + absl::Seconds(2));
  ready.CheckPatience(kAwaited, kStart + absl::Seconds(4));
  EXPECT_FALSE(ready.unlocking());
}

TEST(Patience, EndsIfThreadsWaitForEachOtherInEveryRound) {
  LockedSchedule schedule = TwoBuckets();
  absl::Time now = kStart;
  int rounds = 0;
  while (!schedule.unlocking() && rounds < 100) {
    schedule.Submit(3);
    schedule.CheckPatience(kAwaited, now);
    now += absl::Milliseconds(10);  // until the other thread submits
    for (CacheId id : {1, 2}) schedule.Submit(id);
    for (int bucket = 0; bucket < 2; ++bucket) schedule.Enter(Outcome::kCarriedOut, now);
    schedule.CheckPatience(kAwaited, now);
    ++rounds;
  }
  EXPECT_EQ(rounds, 3) << "more than 20 ms, and more than half of the time";
}

// --- Bugs ---

TEST(LockedScheduleDeathTest, BucketThatThisRankHasVetoedIsNotCarriedOut) {
  LockedSchedule schedule = TwoBuckets();
  schedule.RequestUnlock();
  EXPECT_DEATH(CarryOut(schedule), "has_vetoed");
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
