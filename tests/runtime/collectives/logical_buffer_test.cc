#include "runtime/collectives/logical_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

namespace ronda {
namespace {

TEST(LogicalBufferTest, NoSegmentsAreNoElements) {
  const LogicalBuffer buffer({}, DType::kFloat32);
  EXPECT_EQ(buffer.count(), 0u);
  buffer.ForEachRun(0, 0, [](const LogicalBuffer::Run&) { FAIL(); });
}

TEST(LogicalBufferTest, EmptySegmentsAreNotVisitedAndTheirPointersNotUsed) {
  int32_t value = 7;
  const std::vector<Segment> segments = {{}, {.input = &value, .output = &value, .count = 1}, {}};
  const LogicalBuffer buffer(segments, DType::kInt32);
  EXPECT_EQ(buffer.count(), 1u);
  int visits = 0;
  buffer.ForEachRun(0, 1, [&](const LogicalBuffer::Run& run) {
    ++visits;
    EXPECT_EQ(run.input, &value);
    EXPECT_EQ(run.count, 1u);
    EXPECT_EQ(run.offset, 0u);
  });
  EXPECT_EQ(visits, 1);
}

// Any range of randomly cut segments reads and writes what the same range of one array would.
TEST(LogicalBufferTest, RangesAreThoseOfOneArray) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<int64_t>> inputs;
    std::vector<std::vector<int64_t>> outputs;
    std::vector<int64_t> whole;
    for (uint64_t i = random() % 30; i > 0; --i) {
      inputs.emplace_back(random() % 4);
      for (int64_t& element : inputs.back()) whole.push_back(element = static_cast<int64_t>(random()));
      outputs.emplace_back(inputs.back().size());
    }
    std::vector<Segment> segments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      segments.push_back({.input = inputs[i].data(), .output = outputs[i].data(), .count = inputs[i].size()});
    }
    const LogicalBuffer buffer(segments, DType::kInt64);
    ASSERT_EQ(buffer.count(), whole.size());
    const size_t begin = random() % (whole.size() + 1);
    const size_t n = random() % (whole.size() - begin + 1);
    std::vector<int64_t> seen;
    buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
      EXPECT_GT(run.count, 0u);
      EXPECT_EQ(run.offset, seen.size());
      const auto* input = static_cast<const int64_t*>(run.input);
      seen.insert(seen.end(), input, input + run.count);
      std::copy_n(input, run.count, static_cast<int64_t*>(run.output));
    });
    EXPECT_EQ(seen, std::vector<int64_t>(whole.begin() + begin, whole.begin() + begin + n));
    std::vector<int64_t> written;
    for (const auto& output : outputs) written.insert(written.end(), output.begin(), output.end());
    std::fill(whole.begin(), whole.begin() + begin, 0);
    std::fill(whole.begin() + begin + n, whole.end(), 0);
    EXPECT_EQ(written, whole);
  }
}

}  // namespace
}  // namespace ronda
