// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/offset_allocator.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace ronda {
namespace {

constexpr size_t kUnit = OffsetAllocator::kAlignment;

TEST(OffsetAllocator, BlocksGetTheFirstGapThatIsLargeEnough) {
  OffsetAllocator allocator(10 * kUnit);
  EXPECT_EQ(allocator.Allocate(2 * kUnit), 0u);
  EXPECT_EQ(allocator.Allocate(1), 2 * kUnit) << "a size is rounded up";
  EXPECT_EQ(allocator.Allocate(kUnit + 1), 3 * kUnit);
  EXPECT_EQ(allocator.Allocate(0), 5 * kUnit) << "a block without bytes has a place of its own";
  EXPECT_EQ(allocator.used(), 6 * kUnit);
  EXPECT_TRUE(allocator.Free(2 * kUnit));
  EXPECT_EQ(allocator.Allocate(2 * kUnit), 6 * kUnit) << "the first gap is too small";
  EXPECT_EQ(allocator.Allocate(kUnit), 2 * kUnit);
}

TEST(OffsetAllocator, FullRangeRefusesABlockAndKeepsItsState) {
  OffsetAllocator allocator(4 * kUnit + kUnit / 2);
  EXPECT_EQ(allocator.Allocate(3 * kUnit), 0u);
  EXPECT_EQ(allocator.Allocate(kUnit + 1), std::nullopt) << "the half unit at the end is not used";
  EXPECT_EQ(allocator.largest_gap(), kUnit);
  EXPECT_EQ(allocator.Allocate(std::numeric_limits<size_t>::max()), std::nullopt) << "the rounded size would be 0";
  EXPECT_EQ(allocator.Allocate(kUnit), 3 * kUnit);
  EXPECT_EQ(allocator.largest_gap(), 0u);
  EXPECT_EQ(OffsetAllocator(kUnit - 1).Allocate(1), std::nullopt);
}

TEST(OffsetAllocator, FreedBlocksJoinTheGapsBesideThem) {
  const std::vector<std::vector<size_t>> orders = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}};
  for (const std::vector<size_t>& order : orders) {
    OffsetAllocator allocator(3 * kUnit);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(allocator.Allocate(kUnit).has_value());
    for (const size_t block : order) EXPECT_TRUE(allocator.Free(block * kUnit));
    EXPECT_EQ(allocator.largest_gap(), 3 * kUnit);
    EXPECT_EQ(allocator.used(), 0u);
  }
}

TEST(OffsetAllocator, OnlyTheBeginningOfABlockCanBeFreed) {
  OffsetAllocator allocator(4 * kUnit);
  ASSERT_EQ(allocator.Allocate(2 * kUnit), 0u);
  EXPECT_FALSE(allocator.Free(kUnit));
  EXPECT_FALSE(allocator.Free(2 * kUnit));
  EXPECT_TRUE(allocator.Free(0));
  EXPECT_FALSE(allocator.Free(0)) << "twice";
}

// Compares random calls with a map of units, each of which is free or belongs to one block.
TEST(OffsetAllocator, RandomCallsAgreeWithAMapOfUnits) {
  constexpr size_t kUnits = 64;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    OffsetAllocator allocator(kUnits * kUnit);
    std::vector<bool> is_used(kUnits, false);
    std::map<size_t, size_t> blocks;  // units, by the first one
    const auto first_gap = [&](size_t units) -> std::optional<size_t> {
      for (size_t begin = 0, end = 0; end < kUnits; ++end) {
        if (is_used[end]) begin = end + 1;
        if (end + 1 - begin == units) return begin;
      }
      return std::nullopt;
    };
    const auto mark = [&](size_t begin, size_t units, bool value) {
      for (size_t i = begin; i < begin + units; ++i) is_used[i] = value;
    };
    for (int call = 0; call < 500; ++call) {
      if (random() % 2 == 0 && !blocks.empty()) {
        const auto block = std::next(blocks.begin(), static_cast<ptrdiff_t>(random() % blocks.size()));
        ASSERT_TRUE(allocator.Free(block->first * kUnit)) << "seed " << seed;
        mark(block->first, block->second, false);
        blocks.erase(block);
        continue;
      }
      const size_t units = 1 + random() % 16;
      const std::optional<size_t> expected = first_gap(units);
      const std::optional<size_t> offset = allocator.Allocate(units * kUnit - random() % kUnit);
      ASSERT_EQ(offset.has_value(), expected.has_value()) << "seed " << seed;
      if (!offset.has_value()) continue;
      ASSERT_EQ(*offset, *expected * kUnit) << "seed " << seed;
      mark(*expected, units, true);
      blocks[*expected] = units;
    }
  }
}

}  // namespace
}  // namespace ronda
