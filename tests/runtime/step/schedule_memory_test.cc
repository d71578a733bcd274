// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/schedule_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

namespace ronda {
namespace {

using ::testing::IsNull;
using ::testing::Pointee;

constexpr uint64_t kLasting = 4;  // rounds

const StepBuckets kTraining = {{1, 2}, {3}};
const StepBuckets kValidation = {{7}};
constexpr CacheId kMetric = 9;

class ScheduleMemoryTest : public ::testing::Test {
 protected:
  const StepBuckets* List(std::initializer_list<CacheId> ids) {
    for (CacheId id : ids) memory_.Release(id);
    return memory_.EndList();
  }

  // Locks the schedule, carries it out, and unlocks it.
  void Run(const StepBuckets& buckets, const ScheduleProgress& progress = {.rounds = kLasting}) {
    memory_.Begin(buckets);
    memory_.Unlocked(progress);
  }

  ScheduleMemory memory_{kLasting};
};

TEST_F(ScheduleMemoryTest, KnowsNothingAtFirst) {
  EXPECT_THAT(List({1, 2, 3}), IsNull());
  memory_.ReleaseOther();
  EXPECT_THAT(memory_.EndList(), IsNull());
}

TEST_F(ScheduleMemoryTest, KnownStepBeginsWithTheListThatCompletesIt) {
  Run(kTraining);
  EXPECT_THAT(List({1}), IsNull());
  EXPECT_THAT(List({3, 2}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, IsOfferedOncePerStep) {
  Run(kTraining);
  EXPECT_THAT(List({1, 2, 3}), Pointee(kTraining));
  EXPECT_THAT(List({}), IsNull());
  EXPECT_THAT(List({1, 2}), IsNull());
  EXPECT_THAT(List({3}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, OtherTensorsBetweenThoseOfAStepDoNotMatter) {
  Run(kTraining);
  EXPECT_THAT(List({1, kMetric}), IsNull());
  memory_.ReleaseOther();
  EXPECT_THAT(List({2}), IsNull());
  EXPECT_THAT(List({3}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, StepThatIsBrokenOffBeginsAnew) {
  Run(kTraining);
  EXPECT_THAT(List({1, 2}), IsNull());
  EXPECT_THAT(List({1}), IsNull());
  EXPECT_THAT(List({3}), IsNull()) << "2 is of the step before";
  EXPECT_THAT(List({2}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, TensorsInFrontOfTheFirstRepetitionInItsListAreOfTheNewStep) {
  Run(kTraining);
  EXPECT_THAT(List({1}), IsNull());
  EXPECT_THAT(List({2, 1}), IsNull());
  EXPECT_THAT(List({3}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, BucketsCarriedOutInTheLastRoundCount) {
  Run(kTraining, {.rounds = kLasting, .buckets = 1});
  EXPECT_THAT(List({3}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, BucketsCarriedOutCountForOtherSchedulesToo) {
  const StepBuckets larger = {{1, 2}, {3}, {kMetric}};
  Run(larger);
  Run(kTraining, {.rounds = kLasting, .buckets = 1});
  EXPECT_THAT(List({3, kMetric}), Pointee(larger));
}

TEST_F(ScheduleMemoryTest, LastScheduleBeginsAtOnceAfterSomethingElse) {
  Run(kTraining);
  EXPECT_THAT(List({kMetric}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, TensorOfNoScheduleCountsAsSomethingElse) {
  Run(kTraining);
  memory_.ReleaseOther();
  EXPECT_THAT(memory_.EndList(), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, DoesNotBeginAtOnceWithoutSomethingElse) {
  Run(kTraining);
  EXPECT_THAT(List({}), IsNull());
}

TEST_F(ScheduleMemoryTest, DoesNotBeginAtOnceInTheMiddleOfAStep) {
  Run(kTraining, {.rounds = kLasting, .buckets = 1});
  EXPECT_THAT(List({kMetric}), IsNull());
  Run(kTraining);
  EXPECT_THAT(List({1, kMetric}), IsNull());
  EXPECT_THAT(List({kMetric}), IsNull());
}

TEST_F(ScheduleMemoryTest, WrongGuessIsNotRepeatedButTheScheduleStaysKnown) {
  Run(kTraining);
  const StepBuckets* guess = List({7});
  ASSERT_THAT(guess, Pointee(kTraining));
  memory_.Begin(*guess);
  memory_.Unlocked({.rounds = 0});
  EXPECT_THAT(List({7}), IsNull());
  EXPECT_THAT(List({1, 2, 3}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, GuessThatLastedIsRepeated) {
  Run(kTraining);
  Run(*List({kMetric}));
  EXPECT_THAT(List({kMetric}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, GuessThatFittedButDidNotLastIsForgotten) {
  Run(kTraining);
  Run(*List({kMetric}), {.rounds = 1});
  EXPECT_THAT(List({1, 2, 3}), IsNull());
}

TEST_F(ScheduleMemoryTest, ScheduleThatDidNotLastIsForgotten) {
  Run(kTraining, {.rounds = kLasting - 1});
  EXPECT_THAT(List({1, 2, 3}), IsNull());
  EXPECT_THAT(List({kMetric}), IsNull());
}

TEST_F(ScheduleMemoryTest, PatternsAlternate) {
  Run(kTraining);
  Run(kValidation);
  for (int epoch = 0; epoch < 3; ++epoch) {
    ASSERT_THAT(List({1, 2, 3}), Pointee(kTraining));
    Run(*List({1, 2, 3}));
    ASSERT_THAT(List({7}), Pointee(kValidation)) << "and not the training once more";
    Run(*List({7}));
  }
}

TEST_F(ScheduleMemoryTest, LargestOfTheCompleteOnesIsTheStep) {
  const StepBuckets larger = {{1, 2, 3}, {kMetric}};
  Run(larger);
  Run(kTraining);
  EXPECT_THAT(List({1, 2, 3, kMetric}), Pointee(larger));
  EXPECT_THAT(List({1, 2, 3}), Pointee(kTraining));
}

TEST_F(ScheduleMemoryTest, NewPlanForTheSameTensorsReplacesTheOldOne) {
  Run(kTraining);
  const StepBuckets other = {{3}, {1, 2}};
  Run(other);
  EXPECT_THAT(List({1, 2, 3}), Pointee(other));
}

TEST_F(ScheduleMemoryTest, ScheduleThatDidNotFitIsForgottenHoweverLongItLasted) {
  Run(kValidation);
  Run(kTraining, {.rounds = 1000});
  memory_.Distrust();
  memory_.Distrust();
  EXPECT_THAT(List({1, 2, 3}), IsNull());
  EXPECT_THAT(List({7}), Pointee(kValidation));
}

TEST_F(ScheduleMemoryTest, SchedulesWithATensorThatIsForgottenGo) {
  Run(kValidation);
  Run(kTraining);
  memory_.Forget(3);
  EXPECT_THAT(List({1, 2, 3}), IsNull());
  EXPECT_THAT(List({7}), Pointee(kValidation));
  memory_.Clear();
  EXPECT_THAT(List({7}), IsNull());
}

TEST_F(ScheduleMemoryTest, KeepsTheSchedulesThatWereLockedLast) {
  constexpr CacheId kFirst = 100;
  for (CacheId id = kFirst; id <= kFirst + ScheduleMemory::kCapacity; ++id) Run({{id}});
  EXPECT_THAT(List({kFirst}), Pointee(StepBuckets({{kFirst + ScheduleMemory::kCapacity}}))) << "only something else";
  for (CacheId id = kFirst + 1; id <= kFirst + ScheduleMemory::kCapacity; ++id) {
    EXPECT_THAT(List({id}), Pointee(StepBuckets({{id}})));
  }
}

TEST_F(ScheduleMemoryTest, DamagedProgressIsHarmless) {
  Run(kTraining, {.rounds = kLasting, .buckets = uint64_t{1} << 60});
  EXPECT_THAT(List({1, 2, 3}), Pointee(kTraining));
}

}  // namespace
}  // namespace ronda
