// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench/advise/advice.h"
#include "bench/advise/link.h"

namespace ronda::bench {
namespace {

using model::Gradient;

// Returns a profile of steps that all take the same time. In each step, a gradient of 10 MB becomes ready after each
// quarter.
Profile EvenProfile(double seconds = 0.1) {
  return {.gradients = {{10e6, 0.25}, {10e6, 0.5}, {10e6, 0.75}, {10e6, 1}}, .steps = {seconds, seconds}};
}

Program ProgramOf(const Profile& alone, const Profile& shared) {
  return {.alone = alone, .shared = shared, .busy_cores = 1, .cores = 8};
}

// Returns a wire format on a link between two members, where an allreduce of n MB takes 1 + factor * n ms.
WireOnLink Wire(const std::string& name = "none", double factor = 1) {
  const double base = 1e-3;
  return {.name = name, .curve = AllreduceCurve({{0, base}, {100e6, base + factor * 0.1}}, 2)};
}

TEST(AllreduceCurveTest, LinesBetweenThePointsAndInProportionBeyond) {
  const AllreduceCurve curve({{1000, 1}, {2000, 3}}, 2);
  EXPECT_EQ(curve.At(10, 2), 1);
  EXPECT_EQ(curve.At(1500, 2), 2);
  EXPECT_EQ(curve.At(2000, 2), 3);
  EXPECT_EQ(curve.At(4000, 2), 6);
}

TEST(AllreduceCurveTest, MoreMembersAreARing) {
  const AllreduceCurve curve({{1000, 1}, {2000, 3}}, 2);
  EXPECT_EQ(curve.At(10, 5), 4);
  EXPECT_DOUBLE_EQ(curve.At(2000, 4), 3 + 2 * 1.5);
}

TEST(PredictTest, TheLastGradientIsExposed) {
  const Program program = ProgramOf(EvenProfile(), EvenProfile());
  const Prediction prediction = Predict(program, Wire(), {.ranks = 2, .members = 2, .on_host = 1});
  EXPECT_NEAR(prediction.step, 0.111, 1e-9);
  EXPECT_NEAR(prediction.compute, 0.1, 1e-9);
  EXPECT_NEAR(prediction.sync, 0.041, 1e-9);
  EXPECT_NEAR(prediction.efficiency, 0.1 / 0.111, 1e-9);
  EXPECT_EQ(prediction.tuned, prediction.step);
}

TEST(PredictTest, ALinkThatIsSlowerThanTheBackwardPassDecides) {
  const Program program = ProgramOf(EvenProfile(), EvenProfile());
  const Prediction prediction = Predict(program, Wire("none", 10), {.ranks = 2, .members = 2, .on_host = 1});
  EXPECT_NEAR(prediction.step, 0.025 + 4 * 0.101, 1e-9);
}

TEST(PredictTest, SharedCoresSlowTheComputation) {
  const Program program = ProgramOf(EvenProfile(), EvenProfile(0.3));
  const Prediction prediction = Predict(program, Wire(), {.ranks = 2, .members = 2, .on_host = 2});
  EXPECT_NEAR(prediction.compute, 0.3, 1e-9);
  EXPECT_NEAR(prediction.efficiency, 0.1 / 0.311, 1e-9);
}

TEST(PredictTest, OnAFullHostTheMeanOfTheCopiesCounts) {
  Profile shared = EvenProfile();
  shared.steps = {0.1, 0.1, 0.1, 0.7};
  Program program = ProgramOf(EvenProfile(), shared);
  const Plan plan = {.ranks = 4, .members = 2, .on_host = 4};
  EXPECT_EQ(Predict(program, Wire(), plan).compute, shared.SlowestOf(4));
  shared.steps = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.7};
  program = ProgramOf(EvenProfile(), shared);
  EXPECT_NEAR(Predict(program, Wire(), plan).compute, 0.1, 1e-9);
  program.busy_cores = 0.5;
  program.cores = 2;
  EXPECT_NEAR(Predict(program, Wire(), plan).compute, 0.175, 1e-9);
}

TEST(PredictTest, CommunicationThatFindsNoCoreFreeStopsTheComputation) {
  Program program = ProgramOf(EvenProfile(), EvenProfile());
  program.cores = 2;
  WireOnLink wire = Wire();
  const Plan plan = {.ranks = 2, .members = 2, .on_host = 2};
  EXPECT_NEAR(Predict(program, wire, plan).step, 0.111, 1e-9);
  wire.cpu_share = 1;
  EXPECT_NEAR(Predict(program, wire, plan).step, 0.144, 1e-9);
  wire.cpu_share = 0.5;  // three buckets, each at half of the speed
  EXPECT_NEAR(Predict(program, wire, plan).step, 0.1 + 3 * 0.0055 + 0.011, 1e-9);
  program.cores = 4;
  wire.cpu_share = 1;
  EXPECT_NEAR(Predict(program, wire, plan).step, 0.111, 1e-9);
}

TEST(PredictTest, AVoteCostsItsLatency) {
  Profile profile = EvenProfile();
  profile.votes = 2;
  const Program program = ProgramOf(profile, profile);
  EXPECT_NEAR(Predict(program, Wire(), {.ranks = 2, .members = 2, .on_host = 1}).step, 0.113, 1e-9);
}

TEST(PredictTest, LargerBucketsAreAdvisedWhereLatencyCosts) {
  Profile profile;
  for (int i = 1; i <= 50; ++i) profile.gradients.push_back({1.1e6, i / 50.0});
  profile.steps = {0.05, 0.05};
  const WireOnLink wire = {.name = "none", .curve = AllreduceCurve({{0, 5e-3}, {100e6, 15e-3}}, 2)};
  const Prediction prediction = Predict(ProgramOf(profile, profile), wire, {.ranks = 2, .members = 2, .on_host = 1});
  EXPECT_GT(prediction.min_bucket, 1 << 20);
  EXPECT_LT(prediction.tuned, 0.97 * prediction.step);
}

TEST(BatchFactorTest, IsWhereTheSpeedupIsReached) {
  const Program program = ProgramOf(EvenProfile(), EvenProfile());
  const Plan plan = {.ranks = 2, .members = 2, .on_host = 1};
  const double factor = BatchFactorFor(program, Wire("none", 10), plan, 1.8);
  EXPECT_NEAR(2 * Predict(program, Wire("none", 10), plan, factor).efficiency, 1.8, 0.02);
  EXPECT_GT(factor, BatchFactorFor(program, Wire("none", 10), plan, 1));
  EXPECT_EQ(BatchFactorFor(program, Wire("none", 1e-9), {.ranks = 4096, .members = 2, .on_host = 1}, 0.01), 0);
  const Program crowded = ProgramOf(EvenProfile(), EvenProfile(0.3));
  EXPECT_TRUE(std::isinf(BatchFactorFor(crowded, Wire(), plan, 1)));
}

TEST(BestWireTest, RoundingHasToBeWorthIt) {
  Forecast forecast;
  forecast.wires = {{.step = 1}, {.step = 0.98}, {.step = 0.975}};
  EXPECT_EQ(BestWire(forecast), 0u);
  forecast.wires[1].step = 0.9;
  EXPECT_EQ(BestWire(forecast), 1u);
  forecast.wires[2].step = 0.8;
  EXPECT_EQ(BestWire(forecast), 2u);
}

TEST(LinkFromNumbersTest, NarrowFormatsAreFasterOnASlowLink) {
  const std::vector<WireOnLink> wires = LinkFromNumbers({.gbit = 1, .latency = 50e-6}, 1);
  ASSERT_EQ(wires.size(), 3u);
  EXPECT_NEAR(wires[0].curve.At(16 << 20, 2), 0.134, 0.01);
  EXPECT_NEAR(wires[1].curve.At(16 << 20, 2), 0.067, 0.01);
  EXPECT_LT(wires[2].curve.At(16 << 20, 2), 0.04);
}

}  // namespace
}  // namespace ronda::bench
