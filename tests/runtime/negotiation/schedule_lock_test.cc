#include "runtime/negotiation/schedule_lock.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace ronda {
namespace {

// Two buckets: tensors 1 and 2, then tensor 3.
ScheduleLock TwoBuckets() {
  const auto tensor = [](const std::string& name) {
    return std::make_shared<const Response>(Response{{.name = name}, {}});
  };
  return ScheduleLock({.number = 7, .buckets = {{1, 2}, {3}}},
                      {{.responses = {tensor("a"), tensor("b")}}, {.responses = {tensor("c")}}});
}

std::string NextOf(const ScheduleLock& lock) {
  return lock.Next() == nullptr ? "none" : lock.Next()->responses.front()->request.name;
}

TEST(ScheduleLock, BucketIsEnteredOnceAllOfItsTensorsAreSubmitted) {
  ScheduleLock lock = TwoBuckets();
  EXPECT_EQ(lock.number(), 7u);
  EXPECT_EQ(lock.Next(), nullptr);
  lock.Submit(2);
  EXPECT_EQ(lock.Next(), nullptr);
  lock.Submit(1);
  EXPECT_EQ(NextOf(lock), "a");
}

TEST(ScheduleLock, BucketsComeInTheOrderOfTheScheduleWhateverIsSubmittedFirst) {
  ScheduleLock lock = TwoBuckets();
  lock.Submit(3);
  EXPECT_EQ(lock.Next(), nullptr);
  EXPECT_EQ(lock.submitted(), 1u);
  lock.Submit(1);
  lock.Submit(2);
  EXPECT_EQ(NextOf(lock), "a");
  lock.Advance();
  EXPECT_EQ(NextOf(lock), "c");
  EXPECT_EQ(lock.submitted(), 1u);
  lock.Advance();
  EXPECT_EQ(lock.submitted(), 0u);
}

TEST(ScheduleLock, TensorMayBeSubmittedAgainByItsPlace) {
  ScheduleLock lock = TwoBuckets();
  std::vector<ScheduleLock::Place> places;
  for (CacheId id : {1, 2, 3}) {
    const auto place = lock.Submit(id);
    ASSERT_TRUE(place.has_value());
    places.push_back(*place);
  }
  EXPECT_EQ(places[1].bucket, 0u);
  EXPECT_EQ(places[1].tensor, 1u);
  EXPECT_EQ(places[2].bucket, 1u);
  EXPECT_EQ(places[2].tensor, 0u);
  EXPECT_EQ(lock.next_place(), 0u);
  lock.Advance();
  EXPECT_EQ(lock.next_place(), 1u);
  lock.Advance();
  for (const ScheduleLock::Place place : places) {
    lock.SubmitAgain(place);
  }
  EXPECT_EQ(lock.submitted(), 3u);
  EXPECT_EQ(NextOf(lock), "a");
}

TEST(ScheduleLock, GoesRound) {
  ScheduleLock lock = TwoBuckets();
  for (CacheId id : {1, 2, 3}) lock.Submit(id);
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(lock.rounds(), round);
    EXPECT_EQ(NextOf(lock), "a");
    lock.Advance();
    // Of the next round already: their bucket has been carried out.
    for (CacheId id : {1, 2}) lock.Submit(id);
    EXPECT_EQ(NextOf(lock), "c");
    EXPECT_EQ(lock.rounds(), round);
    lock.Advance();
    lock.Submit(3);
  }
  EXPECT_EQ(lock.rounds(), 3u);
}

TEST(ScheduleLock, WhoWantsToLeaveEntersTheNextBucketWithoutItsTensors) {
  ScheduleLock lock = TwoBuckets();
  EXPECT_FALSE(lock.leaving());
  lock.Leave();
  EXPECT_TRUE(lock.leaving());
  EXPECT_EQ(NextOf(lock), "a");
}

TEST(ScheduleLock, WhoWantsToLeaveMayGoOnToBucketsThatNobodyCarriesOut) {
  ScheduleLock lock = TwoBuckets();
  lock.Submit(1);
  lock.Leave();
  lock.Skip();
  EXPECT_EQ(NextOf(lock), "c");
  lock.Submit(2);  // what was skipped still is not submitted twice
  lock.Skip();
  EXPECT_EQ(NextOf(lock), "a");
  EXPECT_EQ(lock.rounds(), 0u);
}

TEST(ScheduleLockDeathTest, NobodyElseSkipsABucket) {
  ScheduleLock lock = TwoBuckets();
  EXPECT_DEATH(lock.Skip(), "leaving_");
}

TEST(ScheduleLock, TensorThatIsNotInTheScheduleIsACauseToLeave) {
  ScheduleLock lock = TwoBuckets();
  lock.Submit(1);
  EXPECT_FALSE(lock.leaving());
  lock.Submit(4);
  EXPECT_TRUE(lock.leaving());
  EXPECT_EQ(lock.submitted(), 1u);
}

TEST(ScheduleLockDeathTest, TensorSubmittedTwiceIsABug) {
  ScheduleLock lock = TwoBuckets();
  lock.Submit(3);
  EXPECT_DEATH(lock.Submit(3), "missing > 0");
}

TEST(ScheduleLockDeathTest, BucketWithoutItsTensorsCannotHaveBeenCarriedOut) {
  ScheduleLock lock = TwoBuckets();
  lock.Leave();
  EXPECT_DEATH(lock.Advance(), "missing == 0");
}

}  // namespace
}  // namespace ronda
