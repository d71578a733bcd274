#include "examples/lenet_mnist/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace lenet {
namespace {

using Indices = std::vector<std::size_t>;

// The samples of all ranks in one step, sorted.
Indices GlobalBatch(ShardedSampler::Options options, std::size_t size, std::size_t epoch, std::size_t step) {
  Indices all;
  options.size = size;
  for (options.rank = 0; options.rank < size; ++options.rank) {
    ShardedSampler sampler(options);
    sampler.StartEpoch(epoch);
    const Indices batch = sampler.Batch(step);
    EXPECT_EQ(batch.size(), options.batch_size / size);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

Indices Epoch(ShardedSampler& sampler, std::size_t epoch) {
  Indices all;
  sampler.StartEpoch(epoch);
  for (std::size_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const Indices batch = sampler.Batch(step);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

std::string ErrorFor(const ShardedSampler::Options& options) {
  try {
    const ShardedSampler sampler(options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(ShardedSampler, GlobalBatchIsTheSameForAnyNumberOfRanks) {
  const ShardedSampler::Options options{.samples = 100, .batch_size = 24, .seed = 5};
  for (const std::size_t step : {0, 3}) {
    const Indices alone = GlobalBatch(options, 1, /*epoch=*/2, step);
    for (const std::size_t size : {2, 3, 4, 8}) EXPECT_EQ(GlobalBatch(options, size, /*epoch=*/2, step), alone);
  }
}

TEST(ShardedSampler, NoSampleComesTwiceInAnEpochOnAnyRank) {
  const ShardedSampler::Options options{.samples = 103, .batch_size = 20, .seed = 1};
  Indices seen;
  for (std::size_t step = 0; step < 5; ++step) {
    const Indices batch = GlobalBatch(options, 4, /*epoch=*/0, step);
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(std::set<std::size_t>(seen.begin(), seen.end()).size(), 100u);
  EXPECT_LT(*std::max_element(seen.begin(), seen.end()), 103u);
}

TEST(ShardedSampler, AllRanksTakeTheSameNumberOfSteps) {
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const ShardedSampler sampler({.samples = 103, .batch_size = 6, .rank = rank, .size = 3});
    EXPECT_EQ(sampler.steps_per_epoch(), 17u);
  }
}

TEST(ShardedSampler, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  ShardedSampler sampler({.samples = 1000, .batch_size = 10, .seed = 1});
  ShardedSampler other_seed({.samples = 1000, .batch_size = 10, .seed = 2});
  const Indices first = Epoch(sampler, 0);
  EXPECT_NE(Epoch(sampler, 1), first);
  EXPECT_NE(Epoch(other_seed, 0), first);
  EXPECT_EQ(Epoch(sampler, 0), first);
}

// The permutation must not depend on the standard library, or ranks on different machines would disagree.
TEST(ShardedSampler, OrderIsTheSameOnEveryMachine) {
  ShardedSampler sampler({.samples = 10, .batch_size = 10, .seed = 1});
  EXPECT_EQ(Epoch(sampler, 0), (Indices{2, 1, 8, 9, 6, 7, 3, 5, 0, 4}));
}

// With 10,000 draws the first place holds each of 10 samples 1000 +- 30 times (one standard deviation).
TEST(ShardedSampler, PermutationsAreUniform) {
  std::vector<int> counts(10);
  ShardedSampler sampler({.samples = 10, .batch_size = 1, .seed = 7});
  for (std::size_t epoch = 0; epoch < 10'000; ++epoch) {
    sampler.StartEpoch(epoch);
    ++counts[sampler.Batch(0)[0]];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 5 * 30);
}

TEST(ShardedSampler, RefusesBatchesThatRanksCannotShare) {
  EXPECT_EQ(ErrorFor({.samples = 100, .batch_size = 64, .size = 3}),
            "a batch of 64 images cannot be shared equally by 3 ranks: choose a multiple of 3");
}

TEST(ShardedSampler, RefusesBatchesThatCannotBeDrawn) {
  EXPECT_EQ(ErrorFor({.samples = 100, .batch_size = 101}), "a batch of 101 images cannot be drawn from 100");
  EXPECT_EQ(ErrorFor({.samples = 100, .batch_size = 0}), "a batch of 0 images cannot be drawn from 100");
}

}  // namespace
}  // namespace lenet
