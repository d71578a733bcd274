// SPDX-License-Identifier: Apache-2.0

// Tests index arithmetic with sizes that are too large for the memory of a test.
#include "kernels/cuda/block.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/gradients.h"
#include "kernels/cuda/map_launches.h"

namespace ronda::kernels::cuda {
namespace {

struct Segment {
  int id;
};

// The result of CutUp(), which divides segments into tilings.
struct Cut {
  std::vector<int> segments;    // per tiling: how many segments
  std::vector<uint32_t> tiles;  // per tiling: how many tiles
  int error;
};

Cut CutUp(const std::vector<uint64_t>& tiles) {
  Cut cut;
  const auto describe = [&](int index, Segment& segment) {
    segment = {index};
    return tiles[static_cast<size_t>(index)];
  };
  cut.error = ForTilings<Segment>(static_cast<int>(tiles.size()), describe, [&](const Tiling<Segment>& tiling) {
    cut.segments.push_back(tiling.count());
    cut.tiles.push_back(tiling.tiles());
    return 0;
  });
  return cut;
}

TEST(TilingTest, EveryTileIsFoundInItsSegment) {
  Tiling<Segment> tiling;
  const std::vector<uint32_t> sizes = {1, 5, 1, 1, 1000, 2, 7};
  for (size_t i = 0; i < sizes.size(); ++i) tiling.Add({static_cast<int>(i) + 10}, sizes[i]);
  uint32_t tile = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (uint32_t index = 0; index < sizes[i]; ++index, ++tile) {
      const auto place = tiling.Find(tile);
      ASSERT_EQ(place.segment, static_cast<int>(i));
      ASSERT_EQ(place.index, index);
      ASSERT_EQ(tiling.segment(place.segment).id, static_cast<int>(i) + 10);
    }
  }
  EXPECT_EQ(tiling.tiles(), tile);
}

TEST(TilingTest, MoreThanFourGigaElementsAreCounted) {
  constexpr uint64_t kCount = (uint64_t{1} << 42) + 3;
  constexpr uint32_t kTile = TileElements(sizeof(float));
  const uint64_t tiles = TileCount(kCount, kTile);
  EXPECT_EQ(tiles, (kCount + kTile - 1) / kTile);
  ASSERT_LE(tiles, kMaxTiles);
  Tiling<Segment> tiling;
  tiling.Add({0}, 3);
  tiling.Add({1}, tiles);
  const auto place = tiling.Find(tiling.tiles() - 1);
  EXPECT_EQ(place.segment, 1);
  EXPECT_EQ(uint64_t{place.index} * kTile, kCount - 3) << "the last tile has three elements";
}

TEST(TilingTest, AddressesBeyondFourGigabytesAreComputed) {
  const void* base = nullptr;
  const uint64_t index = (uint64_t{1} << 33) + 1;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(At<float>(base, index)), index * 4);
  const DecodeSegment segment = {.blocks = nullptr, .dst = nullptr, .skip = (uint64_t{1} << 40) + 255, .count = 2};
  EXPECT_EQ(FirstBlock(segment), uint64_t{1} << 32);
  EXPECT_EQ(BlocksWanted(segment), 2u);
}

TEST(TilingTest, OneLaunchTakesBertsTensors) {
  const Cut cut = CutUp(std::vector<uint64_t>(398, 3));
  EXPECT_EQ(cut.segments, std::vector<int>{398});
  EXPECT_EQ(cut.tiles, std::vector<uint32_t>{398 * 3});
}

TEST(TilingTest, MoreTensorsTakeMoreLaunches) {
  const Cut cut = CutUp(std::vector<uint64_t>(2000, 1));
  EXPECT_EQ(cut.segments, (std::vector<int>{448, 448, 448, 448, 208}));
}

// The driver copies all parameters of a kernel, even unused ones. So a kernel for few tensors must have few bytes of
// parameters.
TEST(TilingTest, FewTensorsTakeFewBytesOfParameters) {
  const auto parameters = [](int tensors) {
    const std::vector<PackSegment> segments(static_cast<size_t>(tensors), PackSegment{.count = 1});
    std::vector<size_t> bytes;
    const PackCall call = {.segments = segments.data(), .segment_count = tensors, .wire = {.dtype = DType::kBfloat16}};
    LaunchPack(call, [&](const auto& body, uint32_t) {
      bytes.push_back(sizeof(body));
      return 0;
    });
    EXPECT_EQ(bytes.size(), 1u);
    return bytes.front();
  };
  EXPECT_LT(parameters(1), 2500u);
  EXPECT_EQ(parameters(kFewSegments), parameters(1));
  EXPECT_GT(parameters(kFewSegments + 1), 15000u);
  EXPECT_LT(parameters(kMaxSegments), kMaxParameterBytes);
}

TEST(TilingTest, MoreTilesThanAGridHasBlocksTakeMoreLaunches) {
  const Cut cut = CutUp({kMaxTiles - 1, 1, 1, kMaxTiles});
  EXPECT_EQ(cut.segments, (std::vector<int>{2, 1, 1}));
  EXPECT_EQ(CutUp({kMaxTiles + 1}).error, kInvalidCall);
}

TEST(TilingTest, EmptyTensorsTakeNothing) {
  EXPECT_TRUE(CutUp({0, 0, 0}).segments.empty());
  EXPECT_TRUE(CutUp({}).segments.empty());
  EXPECT_EQ(CutUp({0, 2, 0}).segments, std::vector<int>{1});
}

TEST(TilingTest, TheFirstErrorEndsTheLaunches) {
  int launches = 0;
  const auto describe = [](int, Segment&) { return uint64_t{1}; };
  const int error = ForTilings<Segment>(2000, describe, [&](const Tiling<Segment>&) {
    ++launches;
    return 700;
  });
  EXPECT_EQ(error, 700);
  EXPECT_EQ(launches, 1);
}

TEST(TilingTest, PartsOfDotProductsCoverTheTensor) {
  for (uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{1} << 20,
                         (uint64_t{1} << 20) + 1, (uint64_t{1} << 40) + 7}) {
    const uint64_t parts = DotsParts(count);
    EXPECT_LE(parts, static_cast<uint64_t>(kDotsMaxParts));
    EXPECT_GE(parts * DotsPartLength(count), count) << count;
    EXPECT_EQ(DotsPartLength(count) % kThreads, 0u);
  }
}

}  // namespace
}  // namespace ronda::kernels::cuda
