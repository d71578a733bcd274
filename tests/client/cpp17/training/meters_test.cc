// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/meters.hpp"

#include <cmath>
#include <string>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ronda::training::Average;
using ronda::training::Meters;
using ::testing::DoubleNear;
using ::testing::HasSubstr;

TEST(AverageTest, IsWeightedBySamples) {
  Average average;
  EXPECT_TRUE(std::isnan(average.value()));
  average.add(1.0, 3);
  average.add(5.0);
  EXPECT_EQ(average.value(), 2.0);
}

TEST(MetersTest, AverageOverTheSamplesOfAllRanks) {
  ronda::run_threads(3, [] {
    Meters meters;
    // Rank r has r + 1 samples of loss r.
    meters.average("loss").add(ronda::rank(), ronda::rank() + 1);
    meters.accuracy("accuracy").add(1, 2);
    meters.accuracy("accuracy").add(ronda::rank() == 0);
    meters.average("nothing");
    const auto reduced = meters.reduce();
    EXPECT_THAT(reduced.at("loss"), DoubleNear((0 * 1 + 1 * 2 + 2 * 3) / 6.0, 1e-12));
    EXPECT_THAT(reduced.at("accuracy"), DoubleNear(4 / 9.0, 1e-12));
    EXPECT_TRUE(std::isnan(reduced.at("nothing")));
    // reduce() resets the meters to zero.
    meters.average("loss").add(7);
    EXPECT_EQ(meters.reduce().at("loss"), 7);
  });
}

TEST(MetersTest, RankThatHasJoinedIsNotCounted) {
  ronda::run_threads(3, [] {
    Meters meters;
    meters.average("loss").add(ronda::rank(), 4);
    if (ronda::rank() != 1) {
      EXPECT_EQ(meters.reduce().at("loss"), 1);
    }
    ronda::join();
  });
}

TEST(MetersTest, OtherNamesOnAnotherRankAreAnErrorAndLoseNothing) {
  ronda::run_threads(2, [] {
    Meters meters;
    meters.average(ronda::rank() == 0 ? "loss" : "perplexity").add(2);
    const auto reduced = meters.try_reduce();
    EXPECT_EQ(reduced.status().code(), RONDA_ERROR_MISMATCH);
    EXPECT_THAT(reduced.status().message(), HasSubstr(ronda::rank() == 0 ? "'loss'" : "'perplexity'"));
    EXPECT_EQ(meters.average(ronda::rank() == 0 ? "loss" : "perplexity").value(), 2);
  });
}

TEST(MetersTest, OneAverageMoreIsAnErrorToo) {
  ronda::run_threads(2, [] {
    Meters meters;
    meters.average("loss").add(2);
    if (ronda::rank() == 0) meters.average("more").add(2);
    EXPECT_EQ(meters.try_reduce().status().code(), RONDA_ERROR_MISMATCH);
  });
}

}  // namespace
