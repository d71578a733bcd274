// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/step_observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNull;
using ::testing::Pointee;

constexpr int kIdenticalSteps = 3;

// All tensors of a list become ready at the same time.
class StepObserverTest : public ::testing::Test {
 protected:
  const StepBuckets* List(std::initializer_list<CacheId> ids) {
    for (CacheId id : ids) observer_.Release(id, absl::UnixEpoch());
    return EndList();
  }

  const StepBuckets* EndList() {
    return observer_.EndList([this](std::vector<StepTensor>& step) {
      for (StepTensor& tensor : step) {
        tensor.bytes = 4;
        tensor.kind = tensor.id == kOfAnotherKind ? 1 : 0;
        tensor.group = group_;
      }
    });
  }

  // Repeats a step until its schedule is locked, and returns the schedule.
  Schedule LockStep(std::initializer_list<CacheId> ids) {
    for (int step = 1; step < kIdenticalSteps; ++step) EXPECT_THAT(List(ids), IsNull());
    const StepBuckets* const buckets = List(ids);
    return buckets == nullptr ? Schedule() : observer_.Lock(*buckets);
  }

  static constexpr CacheId kOfAnotherKind = 5;

  StepObserver observer_{{.identical_steps = kIdenticalSteps}};
  std::string group_;  // of all tensors
};

TEST_F(StepObserverTest, StepThatRepeatsIsPlannedAndLocked) {
  EXPECT_EQ(observer_.schedules(), 0u);
  const Schedule schedule = LockStep({1, kOfAnotherKind, 2});
  EXPECT_EQ(schedule.number, 1u);
  EXPECT_THAT(schedule.buckets, ElementsAre(ElementsAre(1, 2), ElementsAre(kOfAnotherKind)));
  EXPECT_EQ(observer_.schedules(), 1u);
  EXPECT_TRUE(observer_.locked());
}

TEST_F(StepObserverTest, OfferThatIsNotTakenStaysUntilTheNextRelease) {
  List({1});
  List({1});
  EXPECT_THAT(List({1}), Pointee(ElementsAre(ElementsAre(1))));
  EXPECT_THAT(EndList(), Pointee(ElementsAre(ElementsAre(1))));
  EXPECT_THAT(List({2}), IsNull());
  EXPECT_FALSE(observer_.locked());
}

TEST_F(StepObserverTest, OffersNothingWhileOneIsLocked) {
  LockStep({1, 2});
  EXPECT_THAT(EndList(), IsNull());
  observer_.Unlock({.rounds = kIdenticalSteps});
  EXPECT_FALSE(observer_.locked());
}

TEST_F(StepObserverTest, KnownScheduleBeginsAfterOneStepUnderTheNextNumber) {
  LockStep({1, 2});
  observer_.Unlock({.rounds = kIdenticalSteps});
  const StepBuckets* const buckets = List({2, 1});
  ASSERT_THAT(buckets, Pointee(ElementsAre(ElementsAre(1, 2))));
  EXPECT_EQ(observer_.Lock(*buckets).number, 2u);
}

TEST_F(StepObserverTest, ScheduleThatDidNotFitHasToBeFoundAgain) {
  LockStep({1, 2});
  observer_.Unlock({.rounds = kIdenticalSteps});
  observer_.Distrust();
  for (int step = 1; step < 2 * kIdenticalSteps; ++step) EXPECT_THAT(List({1, 2}), IsNull());
  EXPECT_THAT(List({1, 2}), Pointee(ElementsAre(ElementsAre(1, 2))));
}

// If a schedule does not fit, usually all ranks report it, because their programs are alike. Their reports about one
// schedule count once, and a report about the next schedule counts again.
TEST_F(StepObserverTest, ScheduleThatDidNotFitSeveralRanksCountsOnce) {
  for (int needed = kIdenticalSteps; needed < 16 * kIdenticalSteps; needed *= 2) {
    for (int step = 1; step < needed; ++step) EXPECT_THAT(List({1, 2}), IsNull());
    const StepBuckets* const buckets = List({1, 2});
    ASSERT_THAT(buckets, Pointee(ElementsAre(ElementsAre(1, 2))));
    observer_.Lock(*buckets);
    observer_.Unlock({.rounds = 0});
    for (int rank = 0; rank < 8; ++rank) observer_.Distrust();
  }
}

TEST_F(StepObserverTest, OtherTensorsAndErrorsBreakTheRun) {
  for (const bool is_tensor : {true, false}) {
    List({1});
    List({1});
    if (is_tensor) {
      observer_.ReleaseOther();
    } else {
      observer_.Break();
    }
    EXPECT_THAT(List({1}), IsNull());
  }
}

TEST_F(StepObserverTest, StepWithAGroupThatWouldBeDividedIsNotLocked) {
  group_ = "g";
  EXPECT_EQ(LockStep({1, kOfAnotherKind}).number, 0u);
  group_.clear();
  EXPECT_THAT(List({1, kOfAnotherKind}), IsNull()) << "the run has begun again";
}

TEST_F(StepObserverTest, OtherSizesOfBucketsForgetTheKnownSchedules) {
  LockStep({1, 2});
  observer_.Unlock({.rounds = kIdenticalSteps});
  observer_.SetPlanning({.threshold = 4});
  EXPECT_THAT(LockStep({1, 2}).buckets, ElementsAre(ElementsAre(1), ElementsAre(2)));
}

TEST_F(StepObserverTest, ScheduleWithAForgottenTensorIsForgotten) {
  LockStep({1, 2});
  observer_.Unlock({.rounds = kIdenticalSteps});
  observer_.Forget(2);
  EXPECT_THAT(List({1, 2}), IsNull());
}

}  // namespace
}  // namespace ronda
