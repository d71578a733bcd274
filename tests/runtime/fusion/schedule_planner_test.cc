#include "runtime/fusion/schedule_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

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

TEST(SchedulePlanner, SmallBucketWaits) {
  EXPECT_THAT(Plan({Ready(1, absl::ZeroDuration(), Floats(1)), Ready(2, absl::Seconds(1), Floats(1))}),
              ElementsAre(ElementsAre(1, 2)));
}

// Whoever submits the second one only when the first one is complete would wait for ever otherwise.
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

// A program that always has two tensors under way submits the third one when the first one is complete.
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

TEST(SchedulePlanner, WhatDoesNotFuseHasABucketOfItsOwn) {
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

}  // namespace
}  // namespace ronda
