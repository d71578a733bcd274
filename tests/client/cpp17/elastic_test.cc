// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/elastic.hpp"

#include "client/ronda/threads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using ronda::elastic::Batch;
using ronda::elastic::Sampler;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the next global batch of a job with `ranks` ranks. The batch lists the samples of rank 0 first, then those of
// rank 1, and so on.
std::vector<std::int64_t> Deal(Sampler& sampler, int ranks, std::vector<std::size_t>* shares = nullptr) {
  const Sampler::Cursor before = sampler.cursor();
  std::vector<std::int64_t> all;
  Sampler::Cursor after;
  for (int rank = 0; rank < ranks; ++rank) {
    sampler.cursor() = before;
    const Batch batch = sampler.next(rank, ranks);
    all.insert(all.end(), batch.samples.begin(), batch.samples.end());
    if (shares != nullptr) shares->push_back(batch.samples.size());
    if (rank > 0) {
      EXPECT_EQ(sampler.cursor().epoch, after.epoch);
      EXPECT_EQ(sampler.cursor().taken, after.taken);
    }
    after = sampler.cursor();
    if (rank == ranks - 1) {
      EXPECT_EQ(static_cast<std::int64_t>(all.size()), batch.global_size);
    }
  }
  return all;
}

// The number of members changes at random, and some steps are repeated.
TEST(ElasticSamplerTest, EverySampleIsDealtOnceInACommittedEpochWhoeverTheMembersAre) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int trial = 0; trial < 50; ++trial) {
    const auto size = static_cast<std::int64_t>(1 + random() % 200);
    const auto global = static_cast<std::int64_t>(1 + random() % 40);
    Sampler sampler(size, global, {true, trial % 3u});
    std::vector<std::int64_t> fixed_order;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::int64_t> committed;
      while (sampler.epoch() == epoch) {
        const Sampler::Cursor before = sampler.cursor();
        const std::vector<std::int64_t> batch = Deal(sampler, static_cast<int>(1 + random() % 9));
        if (random() % 4 == 0) {
          sampler.cursor() = before;  // a rank died
          continue;
        }
        committed.insert(committed.end(), batch.begin(), batch.end());
      }
      Sampler alone(size, size, {true, trial % 3u});
      alone.cursor() = {epoch, 0};
      EXPECT_EQ(committed, alone.next(0, 1).samples) << "the order is that of the epoch, whoever the members are";
      std::sort(committed.begin(), committed.end());
      std::vector<std::int64_t> all(static_cast<std::size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(committed, all);
    }
  }
}

TEST(ElasticSamplerTest, SharesDifferByOneAtMostAndTheLastBatchIsSmaller) {
  Sampler sampler(10, 7, {false, 0});
  std::vector<std::size_t> shares;
  EXPECT_THAT(Deal(sampler, 3, &shares), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(shares, ElementsAre(3, 2, 2));
  shares.clear();
  EXPECT_THAT(Deal(sampler, 4, &shares), ElementsAre(7, 8, 9));
  EXPECT_THAT(shares, ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(sampler.epoch(), 1);
}

TEST(ElasticSamplerTest, TheSeedAndTheEpochMakeTheOrder) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    Sampler sampler(50, 50, {true, seed});
    sampler.cursor().epoch = epoch;
    return sampler.next(0, 1).samples;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(ElasticSamplerTest, NumbersThatMakeNoBatchAreRefused) {
  EXPECT_THROW(Sampler(0, 1), ronda::Error);
  EXPECT_THROW(Sampler(1, 0), ronda::Error);
}

struct Sgd {
  std::vector<ronda::Tensor> state() { return {ronda::tensor("momentum", momentum)}; }
  std::vector<float> momentum = {1, 2};
};

// Tests a job that has only this process and is not elastic.
class ElasticRunTest : public ::testing::Test {
 protected:
  ~ElasticRunTest() override { (void)ronda::try_shutdown(); }

  std::vector<float> weights_ = {0, 0, 0};
  Sgd sgd_;
  int value_ = 7;
};

TEST_F(ElasticRunTest, TheBodyRunsOnceAndKnowsItsSteps) {
  Sampler sampler(8, 4);
  ronda::elastic::State state({ronda::tensor("w", weights_)}, sgd_, sampler, &value_);
  int calls = 0;
  const auto end = ronda::elastic::run(state, [&](const ronda::elastic::Membership& membership) {
    ++calls;
    EXPECT_EQ(membership.rank, 0);
    EXPECT_EQ(membership.size, 1);
    EXPECT_EQ(membership.resets, 0);
    for (const std::int64_t first = membership.step; state.step() < first + 4; state.step_done()) {
      for (const std::int64_t sample : sampler.next().samples) weights_[0] += static_cast<float>(sample);
      ++value_;
    }
  });
  EXPECT_EQ(end, ronda::elastic::End::finished);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(weights_[0], 2 * 28);
  EXPECT_EQ(value_, 11);
  EXPECT_EQ(sampler.epoch(), 2);
}

TEST_F(ElasticRunTest, WithoutALauncherAFailureOfTheJobPassesThroughAndSaysWhy) {
  ronda::elastic::State state({ronda::tensor("w", weights_)});
  try {
    ronda::elastic::run(state, [](const auto&) { throw ronda::Error(RONDA_ERROR_PEER_FAILED, "rank 3 has died"); });
    FAIL() << "the failure is lost";
  } catch (const ronda::Error& error) {
    EXPECT_EQ(error.code(), RONDA_ERROR_PEER_FAILED);
    EXPECT_THAT(error.what(), HasSubstr("rank 3 has died"));
    EXPECT_THAT(error.what(), HasSubstr("--min-np"));
  }
}

TEST_F(ElasticRunTest, ExceptionsThatAreNoFailureOfTheJobPassThrough) {
  ronda::elastic::State state({ronda::tensor("w", weights_)});
  EXPECT_THROW(ronda::elastic::run(state, [](const auto&) { throw std::logic_error("a bug"); }), std::logic_error);
  EXPECT_THROW(
      ronda::elastic::run(state, [](const auto&) { throw ronda::Error(RONDA_ERROR_MISMATCH, "ranks disagree"); }),
      ronda::Error);
}

TEST_F(ElasticRunTest, SnapshotsAreOfTheHostsMemory) {
  ronda::elastic::State state({ronda::cuda_tensor("w", weights_.data(), {3}, nullptr)});
  ronda::elastic::RunOptions options;
  options.snapshot_every = 1;
  EXPECT_THROW(ronda::elastic::run(
                   state, [](const auto&) {}, options),
               ronda::Error);
}

TEST(ElasticThreadsTest, ThreadsOfAProcessAreNoMembers) {
  ronda::run_threads(2, [] {
    ronda_elastic_change change = RONDA_ELASTIC_GO_ON;
    EXPECT_EQ(ronda_elastic_poll(&change), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("not elastic"));
    EXPECT_EQ(ronda_elastic_reform(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    ronda_elastic_source source = RONDA_ELASTIC_SOURCE_INIT;
    EXPECT_EQ(ronda_elastic_sync(-1, &source), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

}  // namespace
