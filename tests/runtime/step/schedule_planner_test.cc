// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/schedule_planner.h"

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

constexpr int kFloats = 0;
constexpr int kHalves = 1;

StepTensor Floats(size_t count) { return {.bytes = 4 * count, .kind = kFloats}; }

StepTensor Halves(size_t count) { return {.bytes = 2 * count, .kind = kHalves}; }

// A tensor that does not share its bucket with another tensor.
StepTensor Broadcast(size_t count) { return {.bytes = 4 * count}; }

StepTensor InGroup(const std::string& group, StepTensor tensor) {
  tensor.group = group;
  return tensor;
}

StepTensor OnDevice(StepTensor tensor) {
  tensor.memory = Memory::kCuda;
  return tensor;
}

StepTensor Ready(CacheId id, absl::Duration ready, StepTensor tensor, std::vector<uint64_t> batches = {1}) {
  tensor.id = id;
  tensor.ready = ready;
  tensor.batches = std::move(batches);
  return tensor;
}

StepBuckets Plan(const std::vector<StepTensor>& step, SchedulePlanner::Options options = kOptions) {
  const auto buckets = SchedulePlanner(options).Plan(step);
  EXPECT_TRUE(buckets.has_value());
  return buckets.value_or(StepBuckets());
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

// If the two tensors shared a bucket, a program that submits the second one only when the first is complete would wait
// forever.
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

// A program may keep two tensors in flight, and submit a third one only when the first one is complete.
TEST(SchedulePlanner, BeingTogetherInPairsIsNotEnough) {
  EXPECT_THAT(
      Plan({Ready(1, absl::ZeroDuration(), Floats(1), {1, 5}), Ready(2, absl::ZeroDuration(), Floats(1), {1, 6}),
            Ready(3, absl::ZeroDuration(), Floats(1), {2, 6})}),
      ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
}

TEST(SchedulePlanner, KindsThatAlternateHaveABucketEach) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1)), Ready(2, absl::ZeroDuration(), Halves(1)),
                    Ready(3, absl::ZeroDuration(), Floats(1)), Ready(4, absl::ZeroDuration(), Halves(1))}),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(SchedulePlanner, BucketThatTakesLongToFillHoldsUpNoOther) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1)), Ready(2, absl::Milliseconds(1), Halves(100)),
                    Ready(3, absl::Milliseconds(2), Halves(100)), Ready(4, absl::Milliseconds(3), Floats(1))}),
              ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(1, 4)));
}

TEST(SchedulePlanner, NoTensorOvertakesOneThatItMayHaveWaitedFor) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1), {1}), Ready(2, absl::Microseconds(1), Halves(1), {2}),
                    Ready(3, absl::Microseconds(2), Floats(1), {2})}),
              ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST(SchedulePlanner, TensorThatDoesNotFuseHasItsOwnBucket) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Broadcast(1)), Ready(2, absl::ZeroDuration(), Broadcast(1)),
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
  EXPECT_EQ(SchedulePlanner(kOptions).Plan({Ready(1, absl::ZeroDuration(), InGroup("g", Floats(1))),
                                            Ready(2, absl::ZeroDuration(), InGroup("g", Halves(1)))}),
            std::nullopt);
  EXPECT_EQ(SchedulePlanner(kOptions).Plan({Ready(1, absl::ZeroDuration(), InGroup("g", Broadcast(1))),
                                            Ready(2, absl::ZeroDuration(), InGroup("g", Broadcast(1)))}),
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

}  // namespace
}  // namespace ronda
