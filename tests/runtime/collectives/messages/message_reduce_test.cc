// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/collectives/messages/message_reduce.h"

namespace ronda {
namespace {

TEST(PageScratchTest, BeginsAtAPage) {
  PageScratch scratch;
  EXPECT_EQ(scratch.data(), nullptr);
  for (size_t bytes : {size_t{1}, size_t{4095}, size_t{4097}, size_t{1} << 20, (size_t{1} << 20) + 1}) {
    scratch.Grow(bytes);
    ASSERT_NE(scratch.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.data()) % PageScratch::kPageBytes, 0u) << bytes;
    std::memset(scratch.data(), 1, bytes);  // AddressSanitizer reports it if the memory is smaller
  }
}

TEST(PageScratchTest, KeepsItsMemoryForShorterUses) {
  PageScratch scratch;
  scratch.Grow(10000);
  char* const before = scratch.data();
  std::memset(before, 7, 10000);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{10000}}) {
    scratch.Grow(bytes);
    EXPECT_EQ(scratch.data(), before);
  }
  EXPECT_EQ(before[9999], 7);
}

// Returns the granules of a member's part in order. Expects that the offset of each range is the number of granules
// before it.
std::vector<size_t> GranulesOf(const ReduceRegions& regions, int member, size_t begin, size_t n) {
  std::vector<size_t> granules;
  regions.ForEachRange(member, begin, n, [&](ReduceRegions::Range range, size_t offset) {
    EXPECT_EQ(offset, granules.size());
    for (size_t i = 0; i < range.count; ++i) granules.push_back(range.begin + i);
  });
  return granules;
}

TEST(ReduceRegionsTest, EqualPartsCoverEachGranuleOnce) {
  ReduceRegions regions;
  for (size_t granules : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{1000}}) {
    for (size_t unit : {size_t{1}, size_t{16}}) {
      for (int members : {1, 2, 3, 8}) {
        regions.Divide(granules, unit, members);
        size_t next = 0;
        for (int member = 0; member < members; ++member) {
          for (size_t granule : GranulesOf(regions, member, 0, regions.GranulesOf(member))) EXPECT_EQ(granule, next++);
          EXPECT_TRUE(next % unit == 0 || next == granules) << "a part ends within a unit";
          EXPECT_LE(regions.GranulesOf(member), regions.MostGranules());
        }
        EXPECT_EQ(next, granules);
        EXPECT_LT(regions.MostGranules(), granules / static_cast<size_t>(members) + unit + 1);
      }
    }
  }
}

TEST(ReduceRegionsTest, PartsOfSeveralRangesAreOneArray) {
  ReduceRegions regions;
  regions.Reset(3);
  for (const ReduceRegions::Range& range :
       {ReduceRegions::Range{10, 2}, {50, 0}, {60, 3}, ReduceRegions::Range{0, 0}, {0, 1}, {5, 0}}) {
    regions.Add(range);
  }
  EXPECT_EQ(regions.GranulesOf(0), 5u);
  EXPECT_EQ(regions.GranulesOf(1), 1u);
  EXPECT_EQ(regions.MostGranules(), 5u);
  EXPECT_EQ(GranulesOf(regions, 0, 0, 5), (std::vector<size_t>{10, 11, 60, 61, 62}));
  EXPECT_EQ(GranulesOf(regions, 0, 1, 2), (std::vector<size_t>{11, 60}));
  EXPECT_EQ(GranulesOf(regions, 0, 2, 3), (std::vector<size_t>{60, 61, 62}));
  EXPECT_EQ(GranulesOf(regions, 0, 5, 0), std::vector<size_t>());
  EXPECT_EQ(GranulesOf(regions, 1, 0, 1), std::vector<size_t>{0});
}

TEST(ReduceRegionsTest, NewDivisionForgetsTheLast) {
  ReduceRegions regions;
  regions.Divide(1000, 1, 8);
  regions.Divide(4, 1, 2);
  EXPECT_EQ(regions.MostGranules(), 2u);
  EXPECT_EQ(GranulesOf(regions, 1, 0, 2), (std::vector<size_t>{2, 3}));
}

}  // namespace
}  // namespace ronda
