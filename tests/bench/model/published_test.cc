#include "bench/model/published.h"

#include <string>

#include "gtest/gtest.h"

namespace ronda::bench::model {
namespace {

std::string NameOf(const PublishedPoint& point) {
  return std::string(point.model) + " on " + std::to_string(point.gpus);
}

TEST(PublishedTest, CalibratedFiguresAreMetWithinAPercentagePoint) {
  for (const PublishedPoint& point : PublishedPoints()) {
    if (point.use != PublishedPoint::Use::kCalibrates) continue;
    EXPECT_NEAR(SimulatePublished(point, Contestant::kHorovod).efficiency, point.efficiency, 0.01) << NameOf(point);
  }
}

TEST(PublishedTest, OtherFiguresArePredictedWithinThreePercentagePoints) {
  int checked = 0;
  for (const PublishedPoint& point : PublishedPoints()) {
    if (point.use != PublishedPoint::Use::kChecks) continue;
    EXPECT_NEAR(SimulatePublished(point, Contestant::kHorovod).efficiency, point.efficiency, 0.03) << NameOf(point);
    ++checked;
  }
  EXPECT_EQ(checked, 6);
}

TEST(PublishedTest, AgreeingAheadOfTimeAndHierarchiesAreNoWorseThanHorovod) {
  for (const PublishedPoint& point : PublishedPoints()) {
    const double horovod = SimulatePublished(point, Contestant::kHorovod).efficiency;
    EXPECT_GE(SimulatePublished(point, Contestant::kLocked).efficiency, horovod) << NameOf(point);
    EXPECT_GE(SimulatePublished(point, Contestant::kLockedHierarchical).efficiency, horovod) << NameOf(point);
  }
}

// VGG-16 loses to its bytes: nothing but fewer of them helps.
TEST(PublishedTest, FewerBytesAreWhatVggNeeds) {
  const PublishedPoint vgg = PublishedPoints().back();
  ASSERT_EQ(NameOf(vgg), "vgg16 on 512");
  const double locked = SimulatePublished(vgg, Contestant::kLockedHierarchical).efficiency;
  EXPECT_LT(locked, SimulatePublished(vgg, Contestant::kHorovod).efficiency + 0.05);
  EXPECT_GT(SimulatePublished(vgg, Contestant::kLockedFp16).efficiency, locked + 0.15);
}

}  // namespace
}  // namespace ronda::bench::model
