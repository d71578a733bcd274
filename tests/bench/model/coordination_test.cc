#include "bench/model/coordination.h"

#include <vector>

#include "bench/model/fit.h"
#include "gtest/gtest.h"

namespace ronda::bench::model {
namespace {

constexpr int kTensors = 161;
const LogGP kNetwork = {.latency = 3e-6, .overhead = 1e-6, .gap = 2e-6, .gap_per_byte = 1e-9};

// Ranks and seconds of rank 0's CPU for a step of 161 tensors: docs/design.md, "Agreeing on what to run".
std::vector<Sample> Measured(Coordination coordination) {
  if (coordination == Coordination::kNegotiated) {
    return {{2, 395e-6}, {64, 4520e-6}, {1024, 66400e-6}, {10240, 717000e-6}};
  }
  return {{2, 39e-6}, {64, 347e-6}, {1024, 3550e-6}, {10240, 34100e-6}};
}

TEST(CoordinationTest, ConstantsAreTheLinesThroughWhatWasMeasured) {
  for (const Coordination coordination : {Coordination::kNegotiated, Coordination::kCached}) {
    const Line line = FitLine(Measured(coordination));
    const CoordinationCosts costs = MeasuredCosts(coordination);
    EXPECT_NEAR(costs.round / line.alpha, 1, 0.02) << CoordinationName(coordination);
    EXPECT_NEAR(costs.submission * kTensors / line.beta, 1, 0.02) << CoordinationName(coordination);
  }
}

TEST(CoordinationTest, WhatWasMeasuredIsMetWithinAQuarter) {
  const LogGP no_network;
  for (const Coordination coordination : {Coordination::kNegotiated, Coordination::kCached}) {
    for (const Sample& sample : Measured(coordination)) {
      const double time = RoundBusyTime(coordination, no_network, static_cast<int>(sample.x), kTensors);
      EXPECT_NEAR(time / sample.y, 1, 0.25) << CoordinationName(coordination) << " " << sample.x;
    }
  }
}

TEST(CoordinationTest, LockedCostsNothingAndNeitherDoesASingleRank) {
  EXPECT_EQ(RoundBusyTime(Coordination::kLocked, kNetwork, 16384, kTensors), 0);
  EXPECT_EQ(RoundLatency(Coordination::kLocked, kNetwork, 16384), 0);
  EXPECT_EQ(RoundBusyTime(Coordination::kNegotiated, kNetwork, 1, kTensors), 0);
  EXPECT_EQ(RoundLatency(Coordination::kCached, kNetwork, 1), 0);
}

TEST(CoordinationTest, CachedCostsLessThanNegotiated) {
  for (int ranks = 2; ranks <= 16384; ranks *= 2) {
    const double cached = RoundBusyTime(Coordination::kCached, kNetwork, ranks, kTensors);
    EXPECT_GT(cached, 0);
    EXPECT_LT(cached, RoundBusyTime(Coordination::kNegotiated, kNetwork, ranks, kTensors));
  }
}

TEST(CoordinationTest, MessagesOfEveryRankPassRankZerosPort) {
  const LogGP no_network;
  const double with = RoundBusyTime(Coordination::kCached, kNetwork, 1001, 0);
  const double without = RoundBusyTime(Coordination::kCached, no_network, 1001, 0);
  EXPECT_NEAR(with - without, 2 * 1000 * kNetwork.gap, 1e-12);
  EXPECT_NEAR(RoundLatency(Coordination::kCached, kNetwork, 1001), 10e-6, 1e-12);
}

TEST(CoordinationTest, NamesDiffer) {
  EXPECT_STREQ(CoordinationName(Coordination::kNegotiated), "negotiated");
  EXPECT_STREQ(CoordinationName(Coordination::kCached), "cached");
  EXPECT_STREQ(CoordinationName(Coordination::kLocked), "locked");
}

}  // namespace
}  // namespace ronda::bench::model
