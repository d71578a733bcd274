// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/schedule_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ronda {
namespace {

using ::testing::ElementsAre;

class ScheduleDetectorTest : public ::testing::Test {
 protected:
  // Gives the detector a list of the tensors with these ids. A millisecond passes between two tensors, and a second
  // between two lists.
  void List(const std::vector<CacheId>& ids) {
    for (CacheId id : ids) {
      detector_.Release(id, now_);
      now_ += absl::Milliseconds(1);
    }
    detector_.EndList();
    now_ += absl::Seconds(1);
  }

  std::vector<CacheId> Step() const {
    std::vector<CacheId> ids;
    for (const StepTensor& tensor : detector_.step()) ids.push_back(tensor.id);
    return ids;
  }

  ScheduleDetector detector_{3};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ScheduleDetectorTest, FindsAStepThatCameOftenEnough) {
  for (int step = 0; step < 3; ++step) {
    List({1, 2});
    EXPECT_FALSE(detector_.complete());
    List({3});
  }
  EXPECT_TRUE(detector_.complete());
  EXPECT_THAT(Step(), ElementsAre(1, 2, 3));
}

TEST_F(ScheduleDetectorTest, StaysCompleteUntilTheNextReleaseOnly) {
  for (int step = 0; step < 3; ++step) List({1, 2});
  EXPECT_TRUE(detector_.complete());
  List({});
  EXPECT_TRUE(detector_.complete());
  List({1});
  EXPECT_FALSE(detector_.complete());
  List({2});
  EXPECT_TRUE(detector_.complete());
}

TEST_F(ScheduleDetectorTest, OneTensorIsAStepToo) {
  List({5});
  List({5});
  EXPECT_FALSE(detector_.complete());
  List({5});
  EXPECT_TRUE(detector_.complete());
}

TEST_F(ScheduleDetectorTest, OrderAndDivisionIntoListsMayDiffer) {
  List({1, 2, 3});
  List({3});
  List({2, 1});
  List({2, 3});
  List({1});
  EXPECT_TRUE(detector_.complete());
  EXPECT_THAT(Step(), ElementsAre(2, 3, 1));
}

TEST_F(ScheduleDetectorTest, ReadyTimesAreMeansFromTheBeginningOfTheStep) {
  List({1, 2});  // 0 and 1 ms
  List({2, 1});
  List({1, 2});
  ASSERT_TRUE(detector_.complete());
  const std::vector<StepTensor> step = detector_.step();
  EXPECT_EQ(step[0].ready, absl::Milliseconds(1) / 3);
  EXPECT_EQ(step[1].ready, absl::Milliseconds(2) / 3);
}

TEST_F(ScheduleDetectorTest, BatchesSayInWhichListAndAfterHowManyWaits) {
  for (int step = 0; step < 3; ++step) {
    detector_.Wait();
    List({1, 2});
    List({3});
  }
  const std::vector<StepTensor> step = detector_.step();
  EXPECT_THAT(step[0].batches, ElementsAre(0, 1, 2, 2, 4, 3));
  EXPECT_EQ(step[1].batches, step[0].batches);
  EXPECT_THAT(step[2].batches, ElementsAre(1, 1, 3, 2, 5, 3));
}

TEST_F(ScheduleDetectorTest, OnlyTheLastBatchesAreKept) {
  for (int step = 0; step < 20; ++step) List({1, 2});
  EXPECT_THAT(detector_.step()[0].batches, ElementsAre(16, 0, 17, 0, 18, 0, 19, 0));
}

TEST_F(ScheduleDetectorTest, AnotherSetBeginsTheRunAnew) {
  List({1, 2});
  List({1, 2});
  List({1, 2, 3});
  EXPECT_FALSE(detector_.complete());
  List({1, 2, 3});
  List({1, 2, 3});
  EXPECT_TRUE(detector_.complete());
  List({1, 2});
  List({1, 2, 3});  // the previous list was a step by itself
  EXPECT_FALSE(detector_.complete());
}

TEST_F(ScheduleDetectorTest, ASmallerSetBeginsTheRunAnewToo) {
  List({1, 2, 3});
  List({1, 2, 3});
  List({1, 2});
  EXPECT_FALSE(detector_.complete());
  List({1, 2});
  EXPECT_FALSE(detector_.complete());
  List({1, 2});
  EXPECT_TRUE(detector_.complete());
}

TEST_F(ScheduleDetectorTest, BucketOfAMixedListDoesNotCount) {
  List({1, 2});
  List({1, 2});
  detector_.Release(1, now_);
  detector_.Break();
  detector_.Release(2, now_);
  detector_.EndList();
  EXPECT_FALSE(detector_.complete());
  List({1, 2});
  List({1, 2});
  EXPECT_FALSE(detector_.complete());
  List({1, 2});
  EXPECT_TRUE(detector_.complete());
}

// The ranks have unlocked in the middle of a round, so the second half of the round is negotiated. After that, the job
// negotiates whole steps.
TEST_F(ScheduleDetectorTest, FindsWholeStepsAfterAPartOfOne) {
  List({3, 4});
  List({1, 2, 3, 4});
  List({1, 2, 3, 4});
  EXPECT_FALSE(detector_.complete());
  List({1, 2, 3, 4});
  EXPECT_TRUE(detector_.complete());
  EXPECT_THAT(Step(), ElementsAre(1, 2, 3, 4));
}

TEST_F(ScheduleDetectorTest, StepsOfSeveralListsMayBeginAnywhere) {
  List({3});
  for (int step = 0; step < 2; ++step) {
    List({1, 2});
    List({3});
  }
  List({1, 2});
  EXPECT_TRUE(detector_.complete());
  EXPECT_THAT(Step(), ElementsAre(3, 1, 2));
}

TEST_F(ScheduleDetectorTest, TensorTwiceInAListIsNoStep) {
  List({1, 1});
  List({1, 2});
  List({1, 2});
  EXPECT_FALSE(detector_.complete());
}

TEST_F(ScheduleDetectorTest, ScheduleThatDidNotLastTakesAsManyStepsAgain) {
  for (int run = 0; run < 3; ++run) {
    for (int step = 0; step < 3; ++step) {
      EXPECT_FALSE(detector_.complete());
      List({1, 2});
    }
    EXPECT_TRUE(detector_.complete());
    detector_.Unlocked(0);
  }
}

TEST_F(ScheduleDetectorTest, ScheduleThatDidNotFitTakesTwiceAsManyStepsTheNextTime) {
  for (int needed : {3, 6, 12}) {
    for (int step = 0; step < needed; ++step) {
      EXPECT_FALSE(detector_.complete());
      List({1, 2});
    }
    EXPECT_TRUE(detector_.complete());
    detector_.Unlocked(needed - 1);
    detector_.Distrust();
  }
  for (int step = 0; step < 24; ++step) List({1, 2});
  EXPECT_TRUE(detector_.complete());
  detector_.Unlocked(24);
  for (int step = 0; step < 3; ++step) List({1, 2});
  EXPECT_TRUE(detector_.complete());
}

TEST_F(ScheduleDetectorTest, ThereIsAMostThatItTakes) {
  for (int i = 0; i < 40; ++i) detector_.Distrust();
  for (int step = 0; step < 1023; ++step) List({1});
  EXPECT_FALSE(detector_.complete());
  List({1});
  EXPECT_TRUE(detector_.complete());
}

TEST(ScheduleDetector, FindsNothingIfNotAskedTo) {
  ScheduleDetector detector(0);
  for (int step = 0; step < 5; ++step) {
    detector.Release(1, absl::UnixEpoch());
    detector.EndList();
    EXPECT_FALSE(detector.complete());
  }
}

}  // namespace
}  // namespace ronda
