#include "runtime/collectives/shm/data_stream.h"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

namespace ronda {
namespace {

constexpr size_t kChunk = 4096;

TEST(DataStreamTest, NothingTakesNoRoom) {
  DataStream stream(kChunk);
  const ChunkSequence chunks = stream.Take(0);
  EXPECT_EQ(chunks.count, 0u);
  EXPECT_EQ(chunks.end, 0u);
}

TEST(DataStreamTest, LittleDataLiesCloseTogether) {
  DataStream stream(kChunk);
  EXPECT_EQ(stream.Take(4).begin, 0u);
  EXPECT_EQ(stream.Take(65).begin, 64u);
  EXPECT_EQ(stream.Take(1).begin, 192u);
}

TEST(DataStreamTest, WhatDoesNotFitInTheRestOfAChunkBeginsTheNext) {
  DataStream stream(kChunk);
  stream.Take(4);
  const ChunkSequence chunks = stream.Take(kChunk);
  EXPECT_EQ(chunks.previous_end, 64u);
  EXPECT_EQ(chunks.begin, kChunk);
  EXPECT_EQ(chunks.count, 1u);
  EXPECT_EQ(chunks.end, 2 * kChunk);
}

// Whatever is asked for: chunks follow each other, hold all the data, and none lies across a multiple of the chunk's
// size.
TEST(DataStreamTest, NoChunkIsCutByTheEndOfTheRing) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  DataStream stream(kChunk);
  uint64_t previous_end = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t bytes = random() % (size_t{1} << (random() % 16));
    const ChunkSequence chunks = stream.Take(bytes);
    ASSERT_EQ(chunks.previous_end, previous_end);
    uint64_t position = chunks.begin;
    ASSERT_GE(position, previous_end);
    size_t room = 0;
    for (uint64_t k = 0; k < chunks.count; ++k) {
      ASSERT_EQ(chunks.Begin(k), position);
      position = chunks.End(k);
      ASSERT_EQ(chunks.Begin(k) / kChunk, (position - 1) / kChunk) << bytes << " bytes, chunk " << k;
      room += position - chunks.Begin(k);
    }
    ASSERT_EQ(chunks.end, position);
    ASSERT_GE(room, bytes);
    previous_end = chunks.end;
  }
}

}  // namespace
}  // namespace ronda
