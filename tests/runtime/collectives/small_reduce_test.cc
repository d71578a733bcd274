// SPDX-License-Identifier: Apache-2.0

// Tests reductions with the algorithms for small data (lines and blocks), and of slightly larger data.
#include <gtest/gtest.h>

#include <iterator>
#include <vector>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

// The ring is so small that the data of a test wraps around it often.
constexpr size_t kSlotBytes = 20 << 10;
constexpr int kSlotCount = 3;
// Numbers of floats that fill less than a line, several lines, several blocks, and more than a block.
constexpr size_t kCounts[] = {1, 3, 14, 15, 31, 33, 559, 561, 1000, 1023, 2048, 2049, 4096, 4097, 5120, 6000};

std::vector<Transport> Connect(int size) {
  absl::StatusOr<std::vector<Transport>> transports =
      ConnectShmTransportsInProcess({.size = size, .slot_bytes = kSlotBytes, .slot_count = kSlotCount});
  EXPECT_TRUE(transports.ok()) << transports.status();
  return *std::move(transports);
}

// Returns element i of the contribution of `rank` in `round`. Sums are exact.
float Value(RankId rank, size_t i, int round) {
  return static_cast<float>((static_cast<size_t>(rank) + 1) * (i % 251 + 1) + static_cast<size_t>(round));
}

std::vector<float> Contribution(RankId rank, size_t count, int round) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = Value(rank, i, round);
  return values;
}

std::vector<float> Sum(int size, size_t count, int round) {
  std::vector<float> sum(count, 0.0f);
  for (RankId rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < count; ++i) sum[i] += Value(rank, i, round);
  }
  return sum;
}

// Makes one tensor of the values (cut = 0), for the short code path, or two tensors, for the general code path.
std::vector<Segment> CutAt(size_t cut, std::vector<float>& values) {
  std::vector<Segment> segments;
  if (cut > 0) segments.push_back({.input = values.data(), .output = values.data(), .count = cut});
  float* const rest = values.data() + cut;
  segments.push_back({.input = rest, .output = rest, .count = values.size() - cut});
  return segments;
}

class SmallReduceTest : public ::testing::TestWithParam<int> {};

TEST_P(SmallReduceTest, SizesAndAlgorithmsMayFollowEachOtherInAnyOrder) {
  const int size = GetParam();
  std::vector<Transport> transports = Connect(size);
  testing::RunRanksOn(transports, [size](RankId rank, Transport& transport) {
    for (int round = 0; round < 60; ++round) {
      for (size_t i = 0; i < std::size(kCounts); ++i) {
        const size_t count = kCounts[(i * 7 + static_cast<size_t>(round)) % std::size(kCounts)];
        std::vector<float> values = Contribution(rank, count, round);
        const std::vector<Segment> segments = CutAt(round % 2 == 0 ? 0 : count / 3, values);
        ASSERT_EQ(transport.communicator->Reduce({.segments = segments}), absl::OkStatus());
        ASSERT_EQ(values, Sum(size, count, round)) << count << " elements, round " << round;
      }
    }
  });
}

TEST_P(SmallReduceTest, AVetoedReductionOfAnySizeChangesNothingAndTheNextOneRuns) {
  const int size = GetParam();
  std::vector<Transport> transports = Connect(size);
  testing::RunRanksOn(transports, [size](RankId rank, Transport& transport) {
    for (int round = 0; round < 40; ++round) {
      for (size_t count : kCounts) {
        const bool leaves = round % 2 == 1 && round / 2 % size == rank;
        const auto when_late = [] {};
        Ballot ballot = {.own = leaves ? Ballot::Vote::kVeto : Ballot::Vote::kApprove, .when_late = when_late};
        std::vector<float> values = Contribution(rank, count, round);
        std::vector<Segment> segments = CutAt(0, values);
        if (leaves) segments[0].input = segments[0].output = nullptr;
        ASSERT_EQ(transport.communicator->Reduce({.info = {.ballot = &ballot}, .segments = segments}),
                  absl::OkStatus());
        const bool vetoed = round % 2 == 1;
        ASSERT_EQ(ballot.result, vetoed ? Ballot::Result::kVetoed : Ballot::Result::kCarriedOut);
        ASSERT_EQ(values, vetoed ? Contribution(rank, count, round) : Sum(size, count, round))
            << count << " elements, round " << round;
      }
    }
  });
}

TEST_P(SmallReduceTest, EachRankReceivesItsPartOfABlock) {
  const int size = GetParam();
  constexpr size_t kCount = 1200;
  std::vector<Transport> transports = Connect(size);
  testing::RunRanksOn(transports, [size](RankId rank, Transport& transport) {
    const std::vector<float> input = Contribution(rank, kCount, 0);
    const size_t part = kCount / static_cast<size_t>(size);
    const size_t begin = part * static_cast<size_t>(rank);
    std::vector<float> output(part);
    const Segment segment = {
        .input = input.data(), .output = output.data(), .count = kCount, .part_begin = begin, .part_count = part};
    ASSERT_EQ(transport.communicator->Reduce(
                  {.segments = absl::MakeConstSpan(&segment, 1), .delivery = ReduceCall::Delivery::kParts}),
              absl::OkStatus());
    const std::vector<float> sum = Sum(size, kCount, 0);
    EXPECT_EQ(output, std::vector<float>(sum.begin() + begin, sum.begin() + begin + part));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SmallReduceTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace ronda
