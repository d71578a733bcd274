// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/harness/model_shapes.h"
#include "bench/negotiation/simulated_job.h"

namespace ronda::bench {
namespace {

constexpr int kRanks = 3;

class SimulatedJobTest : public ::testing::Test {
 protected:
  SimulatedJobTest() : gradients_(GradientsOf(*PresetShapes("lenet"))) {
    for (const TensorRequest& gradient : gradients_) all_.push_back(&gradient);
  }

  NegotiationCost StepOf(SimulatedJob* job) {
    return job->Step([&](RankId) { return all_; });
  }

  NegotiationCost StepWithNew(SimulatedJob* job) {
    const TensorRequest extra = {.name = "new", .shape = {10}};
    std::vector<const TensorRequest*> submitted = all_;
    submitted.push_back(&extra);
    return job->Step([&](RankId) { return submitted; });
  }

  const std::vector<TensorRequest> gradients_;
  std::vector<const TensorRequest*> all_;
};

TEST_F(SimulatedJobTest, TheFirstStepSpellsEverythingOutAndTheCacheAnswersLaterOnes) {
  SimulatedJob job(kRanks, Locking::kOff);
  const NegotiationCost first = StepOf(&job);
  const NegotiationCost cached = StepOf(&job);
  EXPECT_EQ(first.messages_up, 1);
  EXPECT_GT(first.report_bytes, 10u * gradients_.size());
  EXPECT_LT(cached.report_bytes, gradients_.size());
  EXPECT_LT(cached.list_bytes, first.list_bytes / 10);
  EXPECT_GT(cached.coordinator_us, 0);
}

TEST_F(SimulatedJobTest, WithoutLockingEveryStepIsNegotiated) {
  SimulatedJob job(kRanks, Locking::kOff);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(StepOf(&job).messages_up, 1);
  EXPECT_FALSE(job.locked());
}

TEST_F(SimulatedJobTest, ALockedStepSendsNothing) {
  SimulatedJob job(kRanks, Locking::kOn);
  for (int i = 0; i < 10; ++i) StepOf(&job);
  ASSERT_TRUE(job.locked());
  const NegotiationCost locked = StepOf(&job);
  EXPECT_EQ(locked.messages_up + locked.messages_down, 0);
  EXPECT_EQ(locked.report_bytes + locked.list_bytes, 0u);
  EXPECT_EQ(locked.coordinator_us, 0);
  EXPECT_TRUE(job.locked());
}

TEST_F(SimulatedJobTest, ANewTensorCostsOneNegotiatedStep) {
  SimulatedJob job(kRanks, Locking::kOn);
  for (int i = 0; i < 10; ++i) StepOf(&job);
  ASSERT_TRUE(job.locked());
  EXPECT_EQ(StepWithNew(&job).messages_up, 1);
  EXPECT_TRUE(job.locked()) << "the list that answers begins the schedule again";
  EXPECT_EQ(StepOf(&job).messages_up, 0);
}

TEST(Gradients, AreSubmittedLastLayerFirst) {
  const std::vector<TensorRequest> gradients = GradientsOf(*PresetShapes("lenet"));
  ASSERT_EQ(gradients.size(), 10u);
  EXPECT_EQ(gradients.front().name, "gradient/fc3.bias");
  EXPECT_EQ(gradients.back().name, "gradient/conv1.weight");
}

}  // namespace
}  // namespace ronda::bench
