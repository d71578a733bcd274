// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/shm/chunk_sync.h"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

namespace ronda {
namespace {

constexpr size_t kChunk = 4096;

TEST(DataStreamTest, EmptyDataTakesNoRoom) {
  DataStream stream(kChunk);
  const ChunkSequence chunks = stream.Reserve(0);
  EXPECT_EQ(chunks.count, 0u);
  EXPECT_EQ(chunks.end, 0u);
}

TEST(DataStreamTest, LittleDataLiesCloseTogether) {
  DataStream stream(kChunk);
  EXPECT_EQ(stream.Reserve(4).begin, 0u);
  EXPECT_EQ(stream.Reserve(65).begin, 64u);
  EXPECT_EQ(stream.Reserve(1).begin, 192u);
}

TEST(DataStreamTest, DataThatDoesNotFitInTheRestOfAChunkBeginsTheNext) {
  DataStream stream(kChunk);
  stream.Reserve(4);
  const ChunkSequence chunks = stream.Reserve(kChunk);
  EXPECT_EQ(chunks.previous_end, 64u);
  EXPECT_EQ(chunks.begin, kChunk);
  EXPECT_EQ(chunks.count, 1u);
  EXPECT_EQ(chunks.end, 2 * kChunk);
}

TEST(DataStreamTest, GranulesAreNotCutByTheEndsOfChunks) {
  constexpr size_t kGranule = 260;
  constexpr size_t kInAChunk = kChunk / kGranule;
  DataStream stream(kChunk);
  EXPECT_EQ(stream.Reserve(kInAChunk * kGranule, kGranule).count, 1u);
  const ChunkSequence chunks = stream.Reserve((kInAChunk + 1) * kGranule, kGranule);
  EXPECT_EQ(chunks.count, 2u);
  EXPECT_EQ(chunks.Begin(1), chunks.begin + kChunk);
  EXPECT_EQ(chunks.end, chunks.Begin(1) + 5 * 64);
}

TEST(DataStreamTest, ChunksOfAnotherSizeBeginAtAMultipleOfIt) {
  DataStream stream(kChunk);
  stream.Reserve(kChunk + 1);
  stream.set_chunk_bytes(4 * kChunk);
  EXPECT_EQ(stream.Reserve(3 * kChunk).begin, 4 * kChunk);
  stream.set_chunk_bytes(kChunk / 2);
  const ChunkSequence chunks = stream.Reserve(kChunk);
  EXPECT_EQ(chunks.begin, 7 * kChunk);
  EXPECT_EQ(chunks.count, 2u);
}

// Makes random requests and changes the chunk size at random. The chunks must follow one another and cover all the
// data, and no chunk may cross a multiple of the chunk size.
TEST(DataStreamTest, NoChunkIsCutByTheEndOfTheRing) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  DataStream stream(kChunk);
  uint64_t previous_end = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t chunk = kChunk << (random() % 4);
    if (random() % 8 == 0) stream.set_chunk_bytes(chunk);
    if (random() % 4 == 0) {
      const ChunkSequence line = stream.ReserveLine();
      ASSERT_EQ(line.begin, previous_end);
      previous_end = line.end;
    }
    const size_t granule = random() % 2 == 0 ? 1 : 1 + random() % kChunk;
    const size_t granules = random() % (size_t{1} << (random() % 16)) / granule;
    const ChunkSequence chunks = stream.Reserve(granules * granule, granule);
    ASSERT_EQ(chunks.previous_end, previous_end);
    uint64_t position = chunks.begin;
    ASSERT_GE(position, previous_end);
    size_t room = 0;
    for (uint64_t k = 0; k < chunks.count; ++k) {
      ASSERT_EQ(chunks.Begin(k), position);
      position = chunks.End(k);
      ASSERT_EQ(chunks.Begin(k) / chunks.chunk_bytes, (position - 1) / chunks.chunk_bytes)
          << granules << " granules, chunk " << k;
      room += (position - chunks.Begin(k)) / granule;
    }
    ASSERT_EQ(chunks.end, position);
    ASSERT_GE(room, granules);
    previous_end = chunks.end;
  }
}

}  // namespace
}  // namespace ronda
