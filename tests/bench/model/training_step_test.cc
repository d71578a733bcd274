// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <vector>

#include "bench/harness/model_shapes.h"
#include "bench/model/costs.h"
#include "bench/model/training_step.h"
#include "gtest/gtest.h"

namespace ronda::bench::model {
namespace {

constexpr double kMillisecond = 1e-3;

// Returns options for two hosts with one rank each. An allreduce takes a millisecond per megabyte. A step has a forward
// pass of 10 ms and a backward pass of 20 ms.
TrainingStepOptions TwoRanks() {
  TrainingStepOptions options;
  options.ranks = 2;
  options.cluster = {.local_size = 1, .host = {}, .network = {.gap_per_byte = 1e-9}};
  options.algorithm = Algorithm::kRing;
  options.compute = 30 * kMillisecond;
  options.min_bucket = 0.5e6;
  return options;
}

TrainingStepOptions Job(int ranks, double gbit) {
  TrainingStepOptions options;
  options.ranks = ranks;
  options.cluster = {.local_size = 8, .host = MeasuredHost(), .network = AssumedNetwork(gbit)};
  return options;
}

std::vector<Gradient> GradientsOf(const char* model) { return BackwardOrder(*PresetShapes(model)); }

TEST(TrainingStepTest, SingleRankOnlyComputes) {
  for (const Coordination coordination : {Coordination::kNegotiated, Coordination::kCached, Coordination::kLocked}) {
    TrainingStepOptions options = Job(1, 25);
    options.coordination = coordination;
    const StepResult result = SimulateStep(GradientsOf("resnet50"), options);
    EXPECT_EQ(result.step, options.compute);
    EXPECT_EQ(result.exposed, 0);
    EXPECT_EQ(result.efficiency, 1);
  }
}

TEST(TrainingStepTest, LastBucketIsExposed) {
  const StepResult result = SimulateStep({{1e6, 0.5}, {2e6, 1}}, TwoRanks());
  EXPECT_EQ(result.buckets, 2);
  EXPECT_NEAR(result.step, 32 * kMillisecond, 1e-9);
  EXPECT_NEAR(result.exposed, 2 * kMillisecond, 1e-9);
  EXPECT_NEAR(result.link_busy, 3 * kMillisecond, 1e-9);
  EXPECT_NEAR(result.efficiency, 30.0 / 32, 1e-9);
}

TEST(TrainingStepTest, BucketsWaitForTheLink) {
  // The link carries the first bucket from 10 ms to 40 ms, so the second bucket waits.
  const StepResult result = SimulateStep({{30e6, 0}, {1e6, 0.5}, {1e6, 1}}, TwoRanks());
  EXPECT_NEAR(result.step, 42 * kMillisecond, 1e-9);
}

TEST(TrainingStepTest, PlannedBucketsHaveTheirLeastSizeAndTheirLargest) {
  const std::vector<Gradient> gradients = EvenGradients(20, 5e6);  // 1 MB each, 1 ms apart
  TrainingStepOptions options = TwoRanks();
  EXPECT_EQ(SimulateStep(gradients, options).buckets, 20);
  options.min_bucket = 4e6;
  EXPECT_EQ(SimulateStep(gradients, options).buckets, 5);
  options.fusion_threshold = 2.5e6;
  EXPECT_EQ(SimulateStep(gradients, options).buckets, 10);
  options.fusion_threshold = 0;
  EXPECT_EQ(SimulateStep(gradients, options).buckets, 20);
}

TEST(TrainingStepTest, TensorsReadyTogetherTravelTogether) {
  const std::vector<Gradient> gradients = {{1e6, 0.5}, {1e6, 0.501}, {1e6, 0.502}, {1e6, 1}};
  EXPECT_EQ(SimulateStep(gradients, TwoRanks()).buckets, 2);
}

TEST(TrainingStepTest, GradientsThatBecomeReadyMeanwhileTravelNext) {
  TrainingStepOptions options = TwoRanks();
  options.bucketing = Bucketing::kWhileBusy;
  // The allreduce of the first gradient takes 5 ms. Meanwhile the next four gradients become ready, 1 ms apart. The
  // last gradient has a bucket of its own.
  const std::vector<Gradient> gradients = {{5e6, 0}, {1e6, 0.05}, {1e6, 0.1}, {1e6, 0.15}, {1e6, 0.2}, {1e6, 1}};
  const StepResult result = SimulateStep(gradients, options);
  EXPECT_EQ(result.buckets, 3);
  EXPECT_NEAR(result.step, 31 * kMillisecond, 1e-9);
}

TEST(TrainingStepTest, CyclesDelayWhatIsReady) {
  TrainingStepOptions options = TwoRanks();
  options.cycle = 7 * kMillisecond;
  // The gradient is ready at 30 ms, and the ranks agree on it in the next cycle, at 35 ms.
  EXPECT_NEAR(SimulateStep({{1e6, 1}}, options).step, 36 * kMillisecond, 1e-9);
  options.bucketing = Bucketing::kWhileBusy;
  EXPECT_NEAR(SimulateStep({{1e6, 1}}, options).step, 36 * kMillisecond, 1e-9);
}

TEST(TrainingStepTest, SlowestRankIsWaitedFor) {
  TrainingStepOptions options = TwoRanks();
  options.jitter = 0.1;
  const double slow = SimulateStep({{1e6, 1}}, options).step;
  EXPECT_GT(slow, 31 * kMillisecond);
  options.ranks = 1000;
  EXPECT_GT(SimulateStep({{1e6, 1}}, options).step, slow);
}

TEST(TrainingStepTest, BackwardOrderBeginsAtTheEndOfTheModelAndTakesTheWholePass) {
  const ModelShapes shapes = *PresetShapes("vgg16");
  const std::vector<Gradient> gradients = BackwardOrder(shapes);
  ASSERT_EQ(gradients.size(), shapes.parameters.size());
  double bytes = 0;
  for (const Gradient& gradient : gradients) bytes += gradient.bytes;
  EXPECT_EQ(bytes, 4.0 * static_cast<double>(shapes.count()));
  EXPECT_EQ(gradients.front().bytes, 4.0 * static_cast<double>(shapes.parameters.back().count()));
  EXPECT_TRUE(std::is_sorted(gradients.begin(), gradients.end(),
                             [](const Gradient& a, const Gradient& b) { return a.ready < b.ready; }));
  EXPECT_NEAR(gradients.back().ready, 1, 1e-9);
  // The classifier has most of the parameters and almost none of the work.
  EXPECT_LT(gradients[5].ready, 0.05);
}

TEST(TrainingStepTest, LockedIsNeverSlowerThanCachedNorThatThanNegotiated) {
  for (const char* model : {"resnet50", "bert-large", "many-small"}) {
    const std::vector<Gradient> gradients = GradientsOf(model);
    for (int ranks = 1; ranks <= 16384; ranks *= 4) {
      TrainingStepOptions options = Job(ranks, 100);
      const double locked = SimulateTunedStep(gradients, options).step;
      options.coordination = Coordination::kCached;
      const double cached = SimulateTunedStep(gradients, options).step;
      options.coordination = Coordination::kNegotiated;
      EXPECT_LE(locked, cached) << model << ranks;
      EXPECT_LE(cached, SimulateTunedStep(gradients, options).step) << model << ranks;
    }
  }
}

TEST(TrainingStepTest, MoreRanksAreNeverFasterAndMoreBandwidthIsNeverSlower) {
  const std::vector<Gradient> gradients = GradientsOf("bert-large");
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree, Algorithm::kHierarchical}) {
    double fewer = 0;
    for (int ranks = 8; ranks <= 16384; ranks *= 2) {
      TrainingStepOptions options = Job(ranks, 25);
      options.algorithm = algorithm;
      options.min_bucket = 16 << 20;
      const double slow = SimulateStep(gradients, options).step;
      EXPECT_GE(slow, fewer) << Name(algorithm) << ranks;
      fewer = slow;
      options.cluster.network = AssumedNetwork(100);
      EXPECT_LE(SimulateStep(gradients, options).step, slow) << Name(algorithm) << ranks;
    }
  }
}

TEST(TrainingStepTest, FewerBytesHelpWhereTheNetworkIsSlow) {
  const std::vector<Gradient> gradients = GradientsOf("bert-large");
  TrainingStepOptions options = Job(512, 25);
  const StepResult full = SimulateTunedStep(gradients, options);
  options.wire = Wire::kFp16;
  const StepResult half = SimulateTunedStep(gradients, options);
  options.wire = Wire::kFp8;
  const StepResult quarter = SimulateTunedStep(gradients, options);
  EXPECT_EQ(half.wire_bytes, full.wire_bytes / 2);
  EXPECT_NEAR(quarter.wire_bytes, full.wire_bytes * 260 / 1024, 1);
  EXPECT_LT(half.step, 0.7 * full.step);
  EXPECT_LT(quarter.step, 0.8 * half.step);
}

TEST(TrainingStepTest, TuningIsNoWorseThanAnyBucketSizeItTries) {
  const std::vector<Gradient> gradients = GradientsOf("resnet50");
  TrainingStepOptions options = Job(16384, 25);
  options.algorithm = Algorithm::kRing;
  const double tuned = SimulateTunedStep(gradients, options).step;
  EXPECT_LT(tuned, SimulateStep(gradients, options).step);
  for (double bytes = 1 << 20; bytes <= 1 << 26; bytes *= 2) {
    options.min_bucket = bytes;
    EXPECT_LE(tuned, SimulateStep(gradients, options).step);
  }
}

TEST(TrainingStepTest, RanksThatMoveTheBytesThemselvesConvertInBetween) {
  for (const Wire wire : {Wire::kNone, Wire::kFp16, Wire::kFp8}) {
    TrainingStepOptions options = TwoRanks();
    options.wire = wire;
    const StepResult by_hardware = SimulateStep({{1e6, 0.5}, {2e6, 1}}, options);
    options.mover = Mover::kCpu;
    const StepResult by_cpu = SimulateStep({{1e6, 0.5}, {2e6, 1}}, options);
    EXPECT_GT(CostOf(wire).work_per_byte, 0) << Name(wire);
    EXPECT_NEAR(by_cpu.link_busy - by_hardware.link_busy, 3e6 * CostOf(wire).work_per_byte, 1e-9) << Name(wire);
    options.ranks = 1;
    EXPECT_EQ(SimulateStep({{1e6, 0.5}}, options).link_busy, 0) << Name(wire);
  }
}

}  // namespace
}  // namespace ronda::bench::model
