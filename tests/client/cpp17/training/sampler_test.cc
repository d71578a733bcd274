// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/sampler.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ronda::training::DistributedSampler;
using ronda::training::DistributedSamplerOptions;
using ronda::training::DistributedSamplerState;
using ronda::training::Tail;
using ::testing::ElementsAre;
using Samples = std::vector<std::int64_t>;

// Takes `steps` samples on each of `ranks` ranks, starting from `state`, and adds them to `*taken`. Returns the final
// state.
DistributedSamplerState take(std::int64_t size, int ranks, const DistributedSamplerState& state, std::int64_t steps,
                             const DistributedSamplerOptions& options, Samples* taken) {
  std::vector<DistributedSampler> samplers;
  for (int rank = 0; rank < ranks; ++rank) {
    samplers.emplace_back(size, rank, ranks, options);
    samplers.back().set_state(state);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    for (DistributedSampler& sampler : samplers) {
      if (const auto sample = sampler.next()) taken->push_back(*sample);
    }
  }
  return samplers.front().state();
}

Samples all(std::int64_t size) {
  Samples samples(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i);
  return samples;
}

TEST(DistributedSamplerTest, RanksOutsideTheJobAndNegativeNumbersAreRefused) {
  EXPECT_THROW(DistributedSampler(-1, 0, 1), ronda::Error);
  EXPECT_THROW(DistributedSampler(10, 2, 2), ronda::Error);
  EXPECT_THROW(DistributedSampler(10, 0, 1).set_state({0, -1}), ronda::Error);
  EXPECT_THROW(DistributedSampler(10, 0, 1).set_epoch(-1), ronda::Error);
}

TEST(DistributedSamplerTest, WithoutShufflingRanksTakeTurns) {
  DistributedSamplerOptions options;
  options.shuffle = false;
  DistributedSampler first(5, 0, 2, options), second(5, 1, 2, options);
  EXPECT_EQ(first.remaining(), 3);
  EXPECT_THAT(first.next(10), ElementsAre(0, 2, 4));
  EXPECT_THAT(second.next(10), ElementsAre(1, 3, 0));
  EXPECT_EQ(first.remaining(), 0);
  options.tail = Tail::drop;
  DistributedSampler dropping(5, 1, 2, options);
  EXPECT_EQ(dropping.remaining(), 2);
  EXPECT_THAT(dropping.next(10), ElementsAre(1, 3));
}

TEST(DistributedSamplerTest, OrdersDifferByEpochAndSeedAndAreTheSameOnEveryRank) {
  DistributedSampler sampler(100, 0, 1);
  const Samples first = sampler.next(100);
  sampler.set_epoch(1);
  const Samples second = sampler.next(100);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.next(100), first);
  EXPECT_NE(first, second);
  DistributedSamplerOptions other;
  other.seed = 1;
  EXPECT_NE(DistributedSampler(100, 0, 1, other).next(100), first);
  EXPECT_EQ(DistributedSampler(100, 1, 4).next(1).front(), first[1]);
}

// The order is the same on every platform and in every version, because a job may be resumed with a different build.
TEST(DistributedSamplerTest, TheOrderIsAPromise) {
  EXPECT_THAT(DistributedSampler(8, 0, 1).next(8), ElementsAre(1, 0, 6, 4, 3, 5, 2, 7));
}

TEST(DistributedSamplerTest, NoSamplesAreNone) {
  EXPECT_FALSE(DistributedSampler(0, 0, 3).next().has_value());
  EXPECT_EQ(DistributedSampler(0, 0, 3).remaining(), 0);
}

// Tests with random sizes that an epoch has each sample once, except for the tail. The job may be resumed in the middle
// of the epoch, with a different number of ranks.
TEST(DistributedSamplerTest, AnEpochHasEachSampleOnceAlsoWhenTheNumberOfRanksChanges) {
  const std::uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const auto size = static_cast<std::int64_t>(1 + random() % 200);
    DistributedSamplerOptions options;
    options.seed = random();
    options.tail = random() % 2 == 0 ? Tail::repeat : Tail::drop;
    DistributedSamplerState state = {static_cast<std::int64_t>(random() % 5), 0};
    Samples taken;
    const int before = static_cast<int>(1 + random() % 6), after = static_cast<int>(1 + random() % 6);
    state =
        take(size, before, state, static_cast<std::int64_t>(random() % 20) * before < size ? 1 : 0, options, &taken);
    take(size, after, state, size + 1, options, &taken);
    const std::size_t count = taken.size();
    std::sort(taken.begin(), taken.end());
    taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
    const auto most = static_cast<std::size_t>(std::max(before, after));
    if (options.tail == Tail::repeat) {
      ASSERT_EQ(taken, all(size));
      ASSERT_LT(count, static_cast<std::size_t>(size) + most);
    } else {
      ASSERT_EQ(count, taken.size());
      ASSERT_GT(count + most, static_cast<std::size_t>(size));
    }
  }
}

TEST(DistributedSamplerTest, KnowsThisRanksPlaceInTheJob) {
  ronda::run_threads(2, [] {
    DistributedSamplerOptions options;
    options.shuffle = false;
    EXPECT_EQ(DistributedSampler(10, options).next(), ronda::rank());
  });
}

}  // namespace
