#include "runtime/fusion/fusion_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ronda {
namespace {

using ::testing::ElementsAre;

// Tensors get the ids 1, 2, ... in the order of `requests`; the plan is told in those ids.
std::vector<std::vector<CacheId>> Plan(size_t threshold, std::vector<TensorRequest> requests) {
  std::vector<Agreed> agreed;
  CacheId id = 0;
  for (TensorRequest& request : requests) agreed.push_back({{std::move(request), {}}, ++id});
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

TEST(FusionPlanner, OnlyAllreducesFuse) {
  TensorRequest gather = Floats(1);
  gather.op = OpType::kAllgather;
  TensorRequest broadcast = Floats(1);
  broadcast.op = OpType::kBroadcast;
  EXPECT_THAT(Plan(1 << 20, {gather, gather, broadcast, broadcast}),
              ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
}

}  // namespace
}  // namespace ronda
