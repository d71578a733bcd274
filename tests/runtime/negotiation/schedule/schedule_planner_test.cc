// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/schedule_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SchedulePlanner::Options kOptions = {
    .threshold = 1000, .min_bucket_bytes = 100, .hold = absl::Microseconds(100)};

TensorRequest Floats(int64_t count) { return {.name = "t", .shape = {count}}; }

TensorRequest InGroup(const std::string& group, TensorRequest request) {
  request.group = group;
  request.group_size = 2;
  return request;
}

StepTensor Ready(CacheId id, absl::Duration ready, TensorRequest request, std::vector<uint64_t> batches = {1}) {
  return {id, ready, std::move(batches), std::make_shared<const Response>(Response{std::move(request), {}})};
}

std::vector<std::vector<CacheId>> Plan(const std::vector<StepTensor>& step,
                                       SchedulePlanner::Options options = kOptions) {
  const auto buckets = SchedulePlanner(options).Plan(step);
  EXPECT_TRUE(buckets.has_value());
  return buckets.value_or(std::vector<std::vector<CacheId>>());
}

TEST(SchedulePlanner, BucketsFollowTheOrderInWhichTensorsBecomeReady) {
  EXPECT_THAT(Plan({Ready(1, absl::Milliseconds(9), Floats(1)), Ready(2, absl::Milliseconds(1), Floats(100)),
                    Ready(3, absl::Milliseconds(5), Floats(100))}),
              ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(1)));
}

TEST(SchedulePlanner, TiesKeepTheOrderOfTheLastStep) {
  EXPECT_THAT(Plan({Ready(3, absl::ZeroDuration(), Floats(1)), Ready(1, absl::ZeroDuration(), Floats(1)),
                    Ready(2, absl::ZeroDuration(), Floats(1))}),
              ElementsAre(ElementsAre(3, 1, 2)));
}

TEST(SchedulePlanner, BucketHoldsAtMostTheThreshold) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(125)), Ready(2, absl::ZeroDuration(), Floats(125)),
                    Ready(3, absl::ZeroDuration(), Floats(1)), Ready(4, absl::ZeroDuration(), Floats(1000))}),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3), ElementsAre(4)));
}

TEST(SchedulePlanner, LargeEnoughBucketDoesNotWaitForWhatComesMuchLater) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(20)), Ready(2, absl::Microseconds(100), Floats(10)),
                    Ready(3, absl::Microseconds(200), Floats(1)), Ready(4, absl::Microseconds(301), Floats(1))}),
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(4)));
}

TensorRequest OnDevice(TensorRequest request) {
  request.memory = Memory::kCuda;
  return request;
}

TEST(SchedulePlanner, OnAGpuAllBucketsButTheFirstAreLarge) {
  std::vector<StepTensor> step;
  for (CacheId id = 1; id <= 8; ++id) {
    step.push_back(Ready(id, id * absl::Milliseconds(1), OnDevice(Floats(150))));
  }
  SchedulePlanner::Options options = kOptions;
  options.threshold = 10000;
  EXPECT_THAT(Plan(step, options), ElementsAre(ElementsAre(1), ElementsAre(2, 3, 4, 5, 6), ElementsAre(7, 8)));
}

TEST(SchedulePlanner, SmallBucketWaits) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1)), Ready(2, absl::Seconds(1), Floats(1))}),
              ElementsAre(ElementsAre(1, 2)));
}

// If they shared one, a program that submits the second tensor only after the first one is complete would wait for
// ever.
TEST(SchedulePlanner, TensorsThatWereNeverInOneListDoNotShareABucket) {
  EXPECT_THAT(
      Plan({Ready(1, absl::ZeroDuration(), Floats(1), {1, 3}), Ready(2, absl::ZeroDuration(), Floats(1), {2, 4})}),
      ElementsAre(ElementsAre(1), ElementsAre(2)));
}

TEST(SchedulePlanner, OneStepInWhichAllWereTogetherIsEnough) {
  EXPECT_THAT(
      Plan({Ready(1, absl::ZeroDuration(), Floats(1), {1, 3}), Ready(2, absl::ZeroDuration(), Floats(1), {2, 3}),
            Ready(3, absl::ZeroDuration(), Floats(1), {1, 3})}),
      ElementsAre(ElementsAre(1, 2, 3)));
}

// A program may keep two tensors under way, and submit the third one only when the first one is complete.
TEST(SchedulePlanner, BeingTogetherInPairsIsNotEnough) {
  EXPECT_THAT(
      Plan({Ready(1, absl::ZeroDuration(), Floats(1), {1, 5}), Ready(2, absl::ZeroDuration(), Floats(1), {1, 6}),
            Ready(3, absl::ZeroDuration(), Floats(1), {2, 6})}),
      ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
}

TEST(SchedulePlanner, KindsThatAlternateHaveABucketEach) {
  TensorRequest half = Floats(1);
  half.dtype = DType::kFloat16;
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1)), Ready(2, absl::ZeroDuration(), half),
                    Ready(3, absl::ZeroDuration(), Floats(1)), Ready(4, absl::ZeroDuration(), half)}),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(SchedulePlanner, BucketThatTakesLongToFillHoldsUpNoOther) {
  TensorRequest half = Floats(100);
  half.dtype = DType::kFloat16;
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1)), Ready(2, absl::Milliseconds(1), half),
                    Ready(3, absl::Milliseconds(2), half), Ready(4, absl::Milliseconds(3), Floats(1))}),
              ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(1, 4)));
}

TEST(SchedulePlanner, NoTensorOvertakesOneThatItMayHaveWaitedFor) {
  TensorRequest half = Floats(1);
  half.dtype = DType::kFloat16;
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1), {1}), Ready(2, absl::Microseconds(1), half, {2}),
                    Ready(3, absl::Microseconds(2), Floats(1), {2})}),
              ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST(SchedulePlanner, TensorThatDoesNotFuseHasItsOwnBucket) {
  TensorRequest broadcast = Floats(1);
  broadcast.op = OpType::kBroadcast;
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), broadcast), Ready(2, absl::ZeroDuration(), broadcast),
                    Ready(3, absl::ZeroDuration(), Floats(1))}),
              ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST(SchedulePlanner, GroupIsNeverDivided) {
  EXPECT_THAT(
      Plan({Ready(1, absl::ZeroDuration(), Floats(200)), Ready(2, absl::ZeroDuration(), InGroup("g", Floats(200))),
            Ready(3, absl::ZeroDuration(), Floats(40)), Ready(4, absl::ZeroDuration(), InGroup("g", Floats(200)))}),
      ElementsAre(ElementsAre(1), ElementsAre(2, 4), ElementsAre(3)));
}

TEST(SchedulePlanner, GroupThatCannotBeOneBucketCannotBeScheduled) {
  TensorRequest half = Floats(1);
  half.dtype = DType::kFloat16;
  EXPECT_EQ(SchedulePlanner(kOptions).Plan({Ready(1, absl::ZeroDuration(), InGroup("g", Floats(1))),
                                            Ready(2, absl::ZeroDuration(), InGroup("g", half))}),
            std::nullopt);
  TensorRequest broadcast = Floats(1);
  broadcast.op = OpType::kBroadcast;
  EXPECT_EQ(SchedulePlanner(kOptions).Plan({Ready(1, absl::ZeroDuration(), InGroup("g", broadcast)),
                                            Ready(2, absl::ZeroDuration(), InGroup("g", broadcast))}),
            std::nullopt);
}

TEST(SchedulePlanner, ThresholdZeroFusesNothing) {
  SchedulePlanner::Options options = kOptions;
  options.threshold = 0;
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1)), Ready(2, absl::ZeroDuration(), Floats(1))}, options),
              ElementsAre(ElementsAre(1), ElementsAre(2)));
  EXPECT_EQ(SchedulePlanner(options).Plan({Ready(1, absl::ZeroDuration(), InGroup("g", Floats(1))),
                                           Ready(2, absl::ZeroDuration(), InGroup("g", Floats(1)))}),
            std::nullopt);
}

TEST(SchedulePlanner, EmptyStepHasNoBuckets) { EXPECT_THAT(Plan({}), IsEmpty()); }

class ScheduleDetectorTest : public ::testing::Test {
 protected:
  // Releases a list with these tensors. A millisecond passes between two tensors, and a second between two lists.
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
    for (const ScheduleDetector::Tensor& tensor : detector_.step()) ids.push_back(tensor.id);
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
  const std::vector<ScheduleDetector::Tensor> step = detector_.step();
  EXPECT_EQ(step[0].ready, absl::Milliseconds(1) / 3);
  EXPECT_EQ(step[1].ready, absl::Milliseconds(2) / 3);
}

TEST_F(ScheduleDetectorTest, BatchesSayInWhichListAndAfterHowManyWaits) {
  for (int step = 0; step < 3; ++step) {
    detector_.Wait();
    List({1, 2});
    List({3});
  }
  const std::vector<ScheduleDetector::Tensor> step = detector_.step();
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

// The ranks have unlocked in the middle of a round. The second half of the round is negotiated, then whole steps
// follow.
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
