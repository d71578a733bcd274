// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/fusion_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ronda {
namespace {

using ::testing::ElementsAre;

// Returns the ids of the tensors in each bucket of the plan. The tensors get the ids 1, 2, ... in the order of
// `requests`.
std::vector<std::vector<CacheId>> Plan(size_t threshold, std::vector<TensorRequest> requests) {
  std::vector<Agreed> agreed;
  CacheId id = 0;
  for (TensorRequest& request : requests) {
    agreed.push_back(
        {.response = std::make_shared<const Response>(Response{std::move(request), {}}), .cached_as = ++id});
  }
  std::vector<std::vector<CacheId>> ids;
  for (const Bucket& bucket : FusionPlanner({.threshold = threshold}).Plan(std::move(agreed))) {
    auto& out = ids.emplace_back();
    for (const Execution& execution : bucket.executions) out.push_back(std::get<CacheId>(execution));
  }
  return ids;
}

TensorRequest Floats(int64_t count) { return {.name = "t", .shape = {count}}; }

TEST(FusionPlanner, SmallTensorsShareABucketUpToTheThreshold) {
  EXPECT_THAT(Plan(40, {Floats(5), Floats(5), Floats(1)}), ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
}

TEST(FusionPlanner, ThresholdZeroFusesNothingThatHasBytes) {
  EXPECT_THAT(Plan(0, {Floats(1), Floats(1)}), ElementsAre(ElementsAre(1), ElementsAre(2)));
}

TEST(FusionPlanner, TensorAboveTheThresholdRunsAlone) {
  EXPECT_THAT(Plan(40, {Floats(1), Floats(100), Floats(1)}),
              ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST(FusionPlanner, DifferentKindsDoNotMix) {
  TensorRequest half = Floats(1);
  half.wire = WireFormat::kFloat16;
  TensorRequest max = Floats(1);
  max.reduction = Reduction::kMax;
  TensorRequest doubles = Floats(1);
  doubles.dtype = DType::kFloat64;
  TensorRequest average = Floats(1);
  average.reduction = Reduction::kAverage;
  TensorRequest scaled = Floats(1);
  scaled.prescale = 2;
  EXPECT_THAT(
      Plan(1 << 20, {Floats(1), half, max, doubles, average, scaled}),
      ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4), ElementsAre(5), ElementsAre(6)));
}

TEST(FusionPlanner, TensorsJoinTheirKindAcrossOthers) {
  TensorRequest half = Floats(1);
  half.wire = WireFormat::kFloat16;
  EXPECT_THAT(Plan(1 << 20, {Floats(1), half, Floats(1), half}), ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(FusionPlanner, ReducescattersFuseAmongThemselves) {
  TensorRequest scatter = Floats(1);
  scatter.op = OpType::kReduceScatter;
  EXPECT_THAT(Plan(1 << 20, {Floats(1), scatter, Floats(1), scatter}),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(FusionPlanner, OtherOperationsDoNotFuse) {
  for (int op = 0; op < kOpTypeCount; ++op) {
    TensorRequest request = Floats(1);
    request.op = static_cast<OpType>(op);
    if (request.op == OpType::kAllreduce || request.op == OpType::kReduceScatter) continue;
    EXPECT_THAT(Plan(1 << 20, {request, request}), ElementsAre(ElementsAre(1), ElementsAre(2))) << Name(request.op);
  }
}

TEST(FusionPlanner, TensorsOnAGpuFuseOnlyWithEachOther) {
  TensorRequest device = Floats(1);
  device.memory = Memory::kCuda;
  EXPECT_THAT(Plan(1 << 20, {Floats(1), device, Floats(1), device}), ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(FusionPlanner, ProcessSetsAndOverflowDetectionKeepTensorsApart) {
  TensorRequest other_set = Floats(1);
  other_set.process_set = 1;
  TensorRequest detected = Floats(1);
  detected.overflow = TensorRequest::Overflow::kDetected;
  EXPECT_THAT(Plan(1 << 20, {Floats(1), other_set, detected, other_set}),
              ElementsAre(ElementsAre(1), ElementsAre(2, 4), ElementsAre(3)));
}

TEST(FusionPlanner, GroupsDoNotKeepTensorsApart) {
  TensorRequest grouped = Floats(1);
  grouped.group = "g";
  grouped.group_size = 1;
  EXPECT_THAT(Plan(1 << 20, {Floats(1), grouped}), ElementsAre(ElementsAre(1, 2)));
}

TEST(FusionPlanner, TimeoutOfOneCallIsNotForcedOnOthers) {
  TensorRequest limited = Floats(1);
  limited.limits = WaitLimits{.deadline = absl::Seconds(1)};
  EXPECT_THAT(Plan(1 << 20, {Floats(1), limited, Floats(1), limited}),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(FusionPlanner, TensorsWithoutTheSameRanksDoNotMix) {
  const auto response = std::make_shared<const Response>(Response{Floats(1), {}});
  using Absent = TensorRequest::Absent;
  std::vector<Agreed> agreed = {{response, 1, {}, Absent::kNotCounted},
                                {response, 2, {4}, Absent::kNotCounted},
                                {response, 3, {4}, Absent::kCountedAsZeros},
                                {response, 4, {4}, Absent::kNotCounted}};
  const std::vector<Bucket> plan = FusionPlanner({}).Plan(std::move(agreed));
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_THAT(plan[1].executions, ElementsAre(Execution(CacheId{2}), Execution(CacheId{4})));
  EXPECT_THAT(plan[1].joined, ElementsAre(4));
  EXPECT_EQ(plan[2].absent, Absent::kCountedAsZeros);
}

TEST(FusionPlanner, UncachedTensorIsSpelledOut) {
  const auto response = std::make_shared<const Response>(Response{Floats(1), {}});
  const std::vector<Bucket> plan = FusionPlanner({}).Plan({{.response = response}});
  EXPECT_THAT(plan.at(0).executions, ElementsAre(Execution(*response)));
}

}  // namespace
}  // namespace ronda
