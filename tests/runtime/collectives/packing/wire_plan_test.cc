// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/packing/wire_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ronda {
namespace {

ReduceCall CallOf(const std::vector<Segment>& segments, DType dtype, WireFormat wire = WireFormat::kNone) {
  return {.segments = segments, .dtype = dtype, .wire = wire};
}

constexpr size_t kOneChunk = size_t{1} << 30;

// Returns the pieces of a region that lie in a chunk.
std::vector<WirePlan::Piece> PiecesOf(const WirePlan& plan, size_t chunk = 0, int region = 0) {
  std::vector<WirePlan::Piece> pieces;
  plan.ForEachPiece(plan.ChunkOf(chunk), region, [&](const WirePlan::Piece& piece) { pieces.push_back(piece); });
  return pieces;
}

TEST(WirePlanTest, TensorsBeginWhereTheDeviceAccessesThemBest) {
  const std::vector<Segment> segments = {{.count = 3}, {.count = 0}, {.count = 4}, {.count = 1}};
  WirePlan plan;
  plan.Lay(CallOf(segments, DType::kFloat32), kOneChunk);
  const std::vector<WirePlan::Piece> pieces = PiecesOf(plan);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].offset, 0u);
  EXPECT_EQ(pieces[1].tensor, 2u);
  EXPECT_EQ(pieces[1].offset, 16u);
  EXPECT_EQ(pieces[2].offset, 32u);
  EXPECT_EQ(plan.bytes(), 48u);
}

// A block has 260 bytes. Four blocks are the smallest number of blocks whose total size is a multiple of 16 bytes.
TEST(WirePlanTest, BlocksBeginAtMultiplesOfBlocks) {
  const std::vector<Segment> segments = {{.count = 1}, {.count = 257}};
  WirePlan plan;
  plan.Lay(CallOf(segments, DType::kFloat32, WireFormat::kFp8E4M3), kOneChunk);
  EXPECT_EQ(plan.unit(), 1040u);
  EXPECT_EQ(PiecesOf(plan)[1].offset, 1040u);
  EXPECT_EQ(plan.bytes(), 2080u);
  EXPECT_EQ(plan.wire().blocks, kernels::cuda::Wire::Blocks::kE4M3);
}

TEST(WirePlanTest, ShardsCoverTheChunkAndBeginAtUnits) {
  for (WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kFp8E5M2}) {
    for (size_t count : {size_t{1}, size_t{5}, size_t{1000}, size_t{100'003}}) {
      const std::vector<Segment> segments = {{.count = count}, {.count = 7}};
      WirePlan plan;
      plan.Lay(CallOf(segments, DType::kFloat32, wire), kOneChunk);
      ASSERT_EQ(plan.chunks(), 1u);
      const WirePlan::Chunk chunk = plan.ChunkOf(0);
      for (int n : {1, 2, 3, 8, 1000}) {
        size_t covered = 0;
        for (int i = 0; i < n; ++i) {
          const WirePlan::Range shard = plan.ShardOf(chunk, i, n);
          EXPECT_EQ(shard.begin, covered);
          EXPECT_EQ(shard.begin % plan.unit(), 0u);
          EXPECT_EQ(shard.bytes % plan.layout().granule_bytes, 0u);
          EXPECT_LE(shard.bytes, plan.ShardBytes(chunk, n));
          covered += shard.bytes;
        }
        EXPECT_EQ(covered, plan.bytes()) << n << " shards of " << plan.bytes();
      }
    }
  }
}

// Every element is in exactly one chunk. No chunk splits a block of 8-bit codes, so the bits of a block do not depend
// on the chunks.
TEST(WirePlanTest, ChunksHaveEveryElementOnceAndWholeGranules) {
  for (WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kFp8E4M3}) {
    for (size_t chunk_bytes : {size_t{1}, size_t{2080}, size_t{10'000}}) {
      const std::vector<Segment> segments = {
          {.count = 3}, {.count = 0}, {.count = 20'003}, {.count = 1}, {.count = 999}};
      WirePlan plan;
      plan.Lay(CallOf(segments, DType::kFloat32, wire), chunk_bytes);
      std::vector<size_t> covered(segments.size());
      size_t bytes = 0;
      for (size_t i = 0; i < plan.chunks(); ++i) {
        const size_t size = plan.BytesOf(plan.ChunkOf(i));
        EXPECT_LE(size, std::max(chunk_bytes, plan.unit()));
        bytes += size;
        for (const WirePlan::Piece& piece : PiecesOf(plan, i)) {
          EXPECT_EQ(piece.begin, covered[piece.tensor]);
          EXPECT_EQ(piece.begin % plan.layout().granule_elements, 0u);
          EXPECT_EQ(piece.offset % 16, 0u);
          EXPECT_LT(piece.offset, size);
          covered[piece.tensor] += piece.count;
        }
      }
      EXPECT_EQ(bytes, plan.bytes());
      for (size_t i = 0; i < segments.size(); ++i) EXPECT_EQ(covered[i], segments[i].count);
    }
  }
}

// Covers rows that cannot be divided evenly, and a tensor with fewer elements than members.
TEST(WirePlanTest, RegionsHaveWhatTheirMembersReceive) {
  constexpr int kMembers = 3;
  const std::vector<Segment> segments = {{.count = 100}, {.count = 2}};
  const auto part_of = [&](size_t segment, int member) {
    const size_t count = segments[segment].count;
    const size_t begin = count * static_cast<size_t>(member) / kMembers;
    return PartRange{.begin = begin, .count = count * static_cast<size_t>(member + 1) / kMembers - begin};
  };
  const ReduceCall::PartOf known_parts = part_of;
  ReduceCall call = CallOf(segments, DType::kFloat32);
  call.part_of = &known_parts;
  for (size_t chunk_bytes : {kOneChunk, size_t{200}}) {
    WirePlan plan;
    plan.LayByMember(call, chunk_bytes, kMembers);
    ASSERT_EQ(plan.regions(), kMembers);
    EXPECT_EQ(plan.chunks() == 1, chunk_bytes == kOneChunk);
    for (int member = 0; member < kMembers; ++member) {
      std::vector<size_t> next = {part_of(0, member).begin, part_of(1, member).begin};
      for (size_t i = 0; i < plan.chunks(); ++i) {
        const WirePlan::Chunk chunk = plan.ChunkOf(i);
        const WirePlan::Range shard = plan.ShardOf(chunk, member, kMembers);
        EXPECT_EQ(shard.bytes, chunk.bytes) << "the regions are the shards";
        for (const WirePlan::Piece& piece : PiecesOf(plan, i, member)) {
          EXPECT_EQ(piece.begin, next[piece.tensor]);
          EXPECT_GE(piece.offset, shard.begin);
          EXPECT_LT(piece.offset, shard.begin + shard.bytes);
          next[piece.tensor] += piece.count;
        }
      }
      EXPECT_EQ(next[0], part_of(0, member).begin + part_of(0, member).count);
      EXPECT_EQ(next[1], part_of(1, member).begin + part_of(1, member).count);
    }
  }
}

// In a reduce, one member receives everything. Separate regions would all be as long as that member's region.
TEST(WirePlanTest, ThereIsOneRegionIfMembersReceiveVeryDifferentShares) {
  const std::vector<Segment> segments = {{.count = 1000}};
  const auto part_of = [](size_t, int member) { return PartRange{.begin = 0, .count = member == 1 ? 1000u : 0u}; };
  const ReduceCall::PartOf known_parts = part_of;
  ReduceCall call = CallOf(segments, DType::kFloat32);
  WirePlan plan;
  plan.LayByMember(call, kOneChunk, 4);
  EXPECT_EQ(plan.regions(), 1) << "no rank knows the parts of others";
  call.part_of = &known_parts;
  plan.LayByMember(call, kOneChunk, 4);
  EXPECT_EQ(plan.regions(), 1);
  EXPECT_EQ(plan.bytes(), 4000u);
}

}  // namespace
}  // namespace ronda
