// SPDX-License-Identifier: Apache-2.0

// Votes inside the launches that pack and unpack: they need no further launch, and a decision comes after all else.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels/cuda/block.h"
#include "kernels/cuda/map_launches.h"

namespace ronda::kernels::cuda {
namespace {

constexpr size_t kTile = TileElements(sizeof(float));
constexpr size_t kTiles = 6;  // per tensor

// A bucket of float32 tensors with several tiles each, which is unpacked under a vote of one element.
class VotedBucket {
 public:
  explicit VotedBucket(size_t tensors, float vote = 0)
      : vote_(vote), wire_(tensors * kTiles * kTile), outputs_(wire_.size(), -1.0f) {
    std::iota(wire_.begin(), wire_.end(), 0.0f);
    for (size_t i = 0; i < tensors; ++i) {
      segments_.push_back({.output = outputs_.data() + i * kTiles * kTile,
                           .count = kTiles * kTile,
                           .offset = i * kTiles * kTile * sizeof(float)});
    }
  }

  UnpackCall Call() {
    return {.segments = segments_.data(),
            .segment_count = static_cast<int>(segments_.size()),
            .wire = {.dtype = DType::kFloat32},
            .buffer = wire_.data(),
            .vote = {.votes = &vote_,
                     .count = 1,
                     .stay = 0,
                     .decision = &decision_,
                     .gate = &gate_,
                     .opens_at = 7,
                     .arrivals = &arrivals_}};
  }

  bool IsUnpacked() const { return outputs_ == wire_; }
  uint32_t Decision() const { return __atomic_load_n(&decision_, __ATOMIC_ACQUIRE); }
  uint32_t Gate() const { return __atomic_load_n(&gate_, __ATOMIC_ACQUIRE); }
  uint32_t arrivals() const { return arrivals_; }

 private:
  float vote_;
  std::vector<float> wire_;
  std::vector<float> outputs_;
  std::vector<UnpackSegment> segments_;
  uint32_t decision_ = 0;
  uint32_t gate_ = 0;
  uint32_t arrivals_ = 0;
};

// Whenever a word is published, notes whether the bucket is unpacked.
class WatchedBlock : public HostBlock {
 public:
  WatchedBlock(uint32_t index, uint32_t grid, const VotedBucket* bucket, std::vector<bool>* unpacked)
      : HostBlock(index, grid), bucket_(*bucket), unpacked_(*unpacked) {}

  void Publish(uint32_t* word, uint32_t value) const {
    unpacked_.push_back(bucket_.IsUnpacked());
    HostBlock::Publish(word, value);
  }

 private:
  const VotedBucket& bucket_;
  std::vector<bool>& unpacked_;
};

TEST(VotesTest, TheDecisionComesLastInWhateverOrderTheBlocksRun) {
  std::minstd_rand random(20261124);  // fixed, so that a failure repeats
  for (int round = 0; round < 20; ++round) {
    VotedBucket bucket(3);
    std::vector<bool> unpacked;  // when the gate was opened, and when the decision was written
    ASSERT_EQ(LaunchUnpack(bucket.Call(),
                           [&](const auto& body, uint32_t blocks) {
                             std::vector<uint32_t> order(blocks);
                             std::iota(order.begin(), order.end(), 0);
                             std::shuffle(order.begin(), order.end(), random);
                             for (const uint32_t index : order) {
                               body(WatchedBlock(index, blocks, &bucket, &unpacked));
                             }
                             return 0;
                           }),
              0);
    EXPECT_EQ(unpacked, (std::vector<bool>{true, true}));
    EXPECT_EQ(bucket.Decision(), 1u);
    EXPECT_EQ(bucket.Gate(), 7u);
    EXPECT_EQ(bucket.arrivals(), 0u) << "for the next launch";
  }
}

// ThreadSanitizer reports accesses whose order is left to chance.
TEST(VotesTest, ObserverOfTheDecisionSeesTheTensors) {
  constexpr uint32_t kBlocks = 4;  // each has several tiles
  for (int round = 0; round < 20; ++round) {
    VotedBucket bucket(2);
    std::barrier<> together(kBlocks + 1);
    std::thread observer([&] {
      together.arrive_and_wait();
      while (bucket.Decision() == 0) std::this_thread::yield();
      EXPECT_TRUE(bucket.IsUnpacked());
      EXPECT_EQ(bucket.Gate(), 7u);
    });
    LaunchUnpack(bucket.Call(), [&](const auto& body, uint32_t) {
      std::vector<std::thread> blocks;
      for (uint32_t index = 0; index < kBlocks; ++index) {
        blocks.emplace_back([&, index] {
          together.arrive_and_wait();
          body(HostBlock(index, kBlocks));
        });
      }
      for (std::thread& block : blocks) block.join();
      return 0;
    });
    observer.join();
    EXPECT_EQ(bucket.arrivals(), 0u);
  }
}

TEST(VotesTest, ALostVoteIsDecidedByTheLastBlockToo) {
  VotedBucket bucket(1, /*vote=*/1);
  LaunchUnpack(bucket.Call(), [&](const auto& body, uint32_t blocks) {
    for (uint32_t index = blocks; index-- > 0;) {
      EXPECT_EQ(bucket.Decision(), 0u);
      body(HostBlock(index, blocks));
    }
    return 0;
  });
  EXPECT_EQ(bucket.Decision(), 2u);
  EXPECT_EQ(bucket.Gate(), 0u);
  EXPECT_FALSE(bucket.IsUnpacked());
}

// Counts the launches that the driver would get.
struct CountLaunches {
  template <class Body>
  int operator()(const Body& /*body*/, uint32_t blocks) const {
    ++*launches;
    EXPECT_GT(blocks, 0u);
    return 0;
  }

  int* launches;
};

TEST(VotesTest, AVoteNeedsNoLaunchOfItsOwn) {
  VotedBucket bucket(kFewSegments);
  int launches = 0;
  LaunchUnpack(bucket.Call(), CountLaunches{&launches});
  EXPECT_EQ(launches, 1);
  const float input = 1;
  float wire[8] = {};
  const PackSegment segment = {.input = &input, .count = 1, .offset = 16};
  launches = 0;
  LaunchPack({.segments = &segment, .segment_count = 1, .buffer = wire, .vote = {.votes = wire, .count = 1}},
             CountLaunches{&launches});
  EXPECT_EQ(launches, 1);
}

TEST(VotesTest, OnlyTheLastOfSeveralLaunchesDecides) {
  VotedBucket bucket(kMaxSegments + 2);
  int launches = 0;
  LaunchUnpack(bucket.Call(), [&](const auto& body, uint32_t blocks) {
    EXPECT_EQ(bucket.Decision(), 0u);
    ++launches;
    for (uint32_t index = 0; index < blocks; ++index) body(HostBlock(index, blocks));
    return 0;
  });
  EXPECT_EQ(launches, 2);
  EXPECT_EQ(bucket.Decision(), 1u);
  EXPECT_TRUE(bucket.IsUnpacked());
}

}  // namespace
}  // namespace ronda::kernels::cuda
