// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "bench/model/predictions.h"
#include "gtest/gtest.h"

namespace ronda::bench::model {
namespace {

std::string NameOf(const PublishedPoint& point) {
  return std::string(point.model) + " on " + std::to_string(point.gpus);
}

TEST(PublishedTest, CalibratedFiguresAreMetWithinAPercentagePoint) {
  for (const PublishedPoint& point : PublishedPoints()) {
    if (point.use != PublishedPoint::Use::kCalibrates) continue;
    EXPECT_NEAR(SimulatePublished(point, Runtime::kHorovod).efficiency, point.efficiency, 0.01) << NameOf(point);
  }
}

TEST(PublishedTest, OtherFiguresArePredictedWithinThreePercentagePoints) {
  int checked = 0;
  for (const PublishedPoint& point : PublishedPoints()) {
    if (point.use != PublishedPoint::Use::kChecks) continue;
    EXPECT_NEAR(SimulatePublished(point, Runtime::kHorovod).efficiency, point.efficiency, 0.03) << NameOf(point);
    ++checked;
  }
  EXPECT_EQ(checked, 6);
}

TEST(PublishedTest, AgreeingAheadOfTimeAndHierarchiesAreNoWorseThanHorovod) {
  for (const PublishedPoint& point : PublishedPoints()) {
    const double horovod = SimulatePublished(point, Runtime::kHorovod).efficiency;
    EXPECT_GE(SimulatePublished(point, Runtime::kLocked).efficiency, horovod) << NameOf(point);
    EXPECT_GE(SimulatePublished(point, Runtime::kLockedHierarchical).efficiency, horovod) << NameOf(point);
  }
}

// VGG-16 is limited by the number of bytes that it sends, so only sending fewer bytes helps.
TEST(PublishedTest, FewerBytesAreWhatVggNeeds) {
  const PublishedPoint vgg = PublishedPoints().back();
  ASSERT_EQ(NameOf(vgg), "vgg16 on 512");
  const double locked = SimulatePublished(vgg, Runtime::kLockedHierarchical).efficiency;
  EXPECT_LT(locked, SimulatePublished(vgg, Runtime::kHorovod).efficiency + 0.05);
  EXPECT_GT(SimulatePublished(vgg, Runtime::kLockedFp16).efficiency, locked + 0.15);
}

SweepOptions Small() {
  SweepOptions options;
  options.models = {"resnet50", "lenet"};
  options.gbit = {25, 100};
  options.ranks = {1, 64};
  return options;
}

TEST(SweepTest, HasALineForEachModelLinkAndNumberOfRanks) {
  const absl::StatusOr<std::vector<SweepLine>> lines = Sweep(Small());
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 8u);
  EXPECT_EQ((*lines)[0].model, "resnet50");
  EXPECT_EQ((*lines)[3].gbit, 100);
  EXPECT_EQ((*lines)[3].ranks, 64);
  EXPECT_EQ((*lines)[7].model, "lenet");
  for (const SweepLine& line : *lines) ASSERT_EQ(line.results.size(), Variants().size());
}

TEST(SweepTest, SingleRankIsFullyEfficientInEveryVariant) {
  const absl::StatusOr<std::vector<SweepLine>> lines = Sweep(Small());
  ASSERT_TRUE(lines.ok()) << lines.status();
  for (const StepResult& result : lines->front().results) EXPECT_EQ(result.efficiency, 1);
  for (const StepResult& result : lines->back().results) EXPECT_LT(result.efficiency, 1);
}

TEST(SweepTest, ComputeAndHostBandwidthReplaceWhatIsAssumed) {
  SweepOptions options = Small();
  options.models = {"bert-large"};
  options.ranks = {8};
  const absl::StatusOr<std::vector<SweepLine>> before = Sweep(options);
  options.compute = 2 * ModelCompute("bert-large");
  options.host_bandwidth = 1e12;
  const absl::StatusOr<std::vector<SweepLine>> after = Sweep(options);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_LT(before->front().results[0].efficiency, 0.9);
  EXPECT_GT(after->front().results[0].efficiency, 0.99);
  EXPECT_GE(after->front().results[0].step, options.compute);
}

TEST(SweepTest, MeasuredLinkIsTakenAsItIs) {
  SweepOptions options = {.models = {"resnet50"}, .link = {.gbit = 0.5, .latency = 100e-6}, .ranks = {2}};
  options.local_size = 1;
  options.compute = 1e-9;
  const absl::StatusOr<std::vector<SweepLine>> lines = Sweep(options);
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 1u) << "one link, whatever gbit lists";
  const SweepLine& line = lines->front();
  EXPECT_EQ(line.gbit, 0.5);
  // An allreduce moves 102.2 MB at 62.5 MB/s in each direction, half of them in each of its two phases.
  constexpr double kBytes = 102.2e6;
  EXPECT_NEAR(line.results[0].step, kBytes / 62.5e6, 0.01);
  options.link.gbit = 1;
  const absl::StatusOr<std::vector<SweepLine>> faster = Sweep(options);
  ASSERT_TRUE(faster.ok()) << faster.status();
  EXPECT_NEAR(line.results[0].step / faster->front().results[0].step, 2, 0.02);
}

TEST(SweepTest, UnknownModelIsAnError) {
  SweepOptions options;
  options.models = {"alexnet"};
  EXPECT_EQ(Sweep(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SweepTest, RowsNameTheirVariant) {
  const absl::StatusOr<std::vector<SweepLine>> lines = Sweep(Small());
  ASSERT_TRUE(lines.ok()) << lines.status();
  const std::vector<ResultRow> rows = SweepRows(*lines);
  ASSERT_EQ(rows.size(), lines->size() * Variants().size());
  EXPECT_EQ(rows[3][4], (std::pair<std::string, Value>("coordination", "negotiated")));
  EXPECT_EQ(rows.back()[5], (std::pair<std::string, Value>("wire", "fp8")));
  EXPECT_EQ(PublishedRows().size(), 9u);
}

}  // namespace
}  // namespace ronda::bench::model
