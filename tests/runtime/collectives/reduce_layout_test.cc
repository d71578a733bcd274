// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/reduce_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

namespace ronda {
namespace {

TEST(LogicalBufferTest, NoSegmentsAreNoGranules) {
  const LogicalBuffer buffer({}, 1);
  EXPECT_EQ(buffer.granules(), 0u);
  buffer.ForEachRun(0, 0, [](const LogicalBuffer::Run&) { FAIL(); });
}

TEST(LogicalBufferTest, EmptySegmentsAreNotVisited) {
  const std::vector<Segment> segments = {{}, {.count = 1}, {}};
  const LogicalBuffer buffer(segments, 1);
  EXPECT_EQ(buffer.granules(), 1u);
  int visits = 0;
  buffer.ForEachRun(0, 1, [&](const LogicalBuffer::Run& run) {
    ++visits;
    EXPECT_EQ(run.segment, 1u);
    EXPECT_EQ(run.begin, 0u);
    EXPECT_EQ(run.count, 1u);
    EXPECT_EQ(run.offset, 0u);
  });
  EXPECT_EQ(visits, 1);
}

TEST(LogicalBufferTest, EachSegmentBeginsAGranuleAndMayEndWithinOne) {
  const std::vector<Segment> segments = {{.count = 5}, {.count = 8}, {.count = 1}};
  const LogicalBuffer buffer(segments, 4);
  EXPECT_EQ(buffer.granules(), 5u);
  std::vector<size_t> counts;
  buffer.ForEachRun(1, 4, [&](const LogicalBuffer::Run& run) { counts.push_back(run.count); });
  EXPECT_EQ(counts, (std::vector<size_t>{1, 8, 1}));
}

// The position of an element, which is its segment and its index in the segment.
using Place = std::pair<size_t, size_t>;

// Tests segments of random sizes. For any range of granules, the runs must contain exactly the elements of these
// granules, in order.
TEST(LogicalBufferTest, RangesAreThoseOfOneArrayOfGranules) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int round = 0; round < 400; ++round) {
    const size_t granule = size_t{1} << random() % 4;
    std::vector<Segment> segments(random() % 30);
    std::vector<std::vector<Place>> granules;
    for (size_t i = 0; i < segments.size(); ++i) {
      segments[i].count = random() % (3 * granule);
      for (size_t element = 0; element < segments[i].count; ++element) {
        if (element % granule == 0) granules.emplace_back();
        granules.back().emplace_back(i, element);
      }
    }
    const LogicalBuffer buffer(segments, granule);
    ASSERT_EQ(buffer.granules(), granules.size());
    const size_t begin = random() % (granules.size() + 1);
    const size_t n = random() % (granules.size() - begin + 1);
    std::vector<Place> expected;
    for (size_t i = begin; i < begin + n; ++i) expected.insert(expected.end(), granules[i].begin(), granules[i].end());
    std::vector<Place> seen;
    buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
      EXPECT_GT(run.count, 0u);
      EXPECT_EQ(granules[begin + run.offset].front(), Place(run.segment, run.begin));
      for (size_t i = 0; i < run.count; ++i) seen.emplace_back(run.segment, run.begin + i);
    });
    EXPECT_EQ(seen, expected);
  }
}

}  // namespace
}  // namespace ronda
