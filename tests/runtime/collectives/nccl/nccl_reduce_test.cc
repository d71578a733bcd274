// SPDX-License-Identifier: Apache-2.0

// Tests the algorithms of reductions over NCCL: their NCCL calls, the chunks of large buckets, and their memory.
// tests/conformance checks the results of many more cases.
#include "runtime/collectives/nccl/nccl_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/collectives/nccl/nccl_job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

CallInfo Info(absl::string_view label) { return {.label = label, .limits = {.deadline = kLong}}; }

// Returns a member's part if `count` elements are divided as evenly as possible among `members` members.
PartRange RowsOf(size_t count, int member, int members) {
  const size_t begin = count * static_cast<size_t>(member) / static_cast<size_t>(members);
  return {.begin = begin, .count = count * static_cast<size_t>(member + 1) / static_cast<size_t>(members) - begin};
}

// The tensors of one rank, and the parts of the results that the rank receives.
struct Tensors {
  std::vector<DeviceMemory> inputs;
  std::vector<DeviceMemory> outputs;
  std::vector<Segment> segments;
};

constexpr float kUntouched = -1;

// Returns a tensor whose element i is i % 8 plus the rank.
Tensors TensorsOf(NcclRank& self, RankId rank, absl::Span<const size_t> counts,
                  const std::function<PartRange(size_t count)>& part_of) {
  Tensors tensors;
  for (size_t count : counts) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 8 + static_cast<size_t>(rank));
    const PartRange part = part_of(count);
    tensors.inputs.push_back(self.Floats(values));
    tensors.outputs.push_back(self.Floats(std::vector<float>(part.count + 1, kUntouched)));
    tensors.segments.push_back({.input = tensors.inputs.back().data(),
                                .output = tensors.outputs.back().data(),
                                .count = count,
                                .part_begin = part.begin,
                                .part_count = part.count});
  }
  return tensors;
}

// Returns `part` of the divided sum of these tensors over all `ranks`, and the unchanged element after it.
std::vector<float> SumOf(PartRange part, const std::vector<RankId>& ranks, float divisor) {
  const auto n = static_cast<float>(ranks.size());
  const auto of_ranks = static_cast<float>(std::accumulate(ranks.begin(), ranks.end(), 0));
  std::vector<float> sums;
  for (size_t i = part.begin; i < part.begin + part.count; ++i) {
    sums.push_back((n * static_cast<float>(i % 8) + of_ranks) / divisor);
  }
  sums.push_back(kUntouched);
  return sums;
}

class NcclReduceTest : public ::testing::Test {
 protected:
  void SetUp() override { SetFakeNcclFaults(kNoFaults); }
  void TearDown() override {
    EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
    EXPECT_EQ(PopFakeNcclReport(), "");
  }

  // Reduce-scatters tensors of these sizes among `group`, with the sums divided by 4, and checks the results.
  static void ReduceScatter(NcclJob& job, absl::Span<const size_t> counts, WireFormat wire, const Group& group) {
    job.OnEveryRank([&](RankId rank, NcclRank& self) {
      const std::optional<int> position = group.PositionOf(rank);
      const bool takes_part = position.has_value();
      const auto own_part = [&](size_t count) {
        return takes_part ? RowsOf(count, *position, group.size()) : PartRange{};
      };
      Tensors tensors = TensorsOf(self, rank, counts, own_part);
      if (!takes_part) {
        for (Segment& segment : tensors.segments) segment = {.count = segment.count};
      }
      const auto part_of = [&](size_t i, int member) { return RowsOf(counts[i], member, group.size()); };
      const ReduceCall::PartOf known_parts = part_of;
      CallInfo info = Info("parts");
      info.group = &group;
      constexpr int kDivisor = 4;
      ASSERT_EQ(self.communicator().Reduce({.info = info,
                                            .segments = tensors.segments,
                                            .wire = wire,
                                            .postscale = {.divisor = kDivisor},
                                            .delivery = ReduceCall::Delivery::kParts,
                                            .part_of = &known_parts}),
                absl::OkStatus());
      self.Finish();
      for (size_t t = 0; takes_part && t < counts.size(); ++t) {
        EXPECT_EQ(self.Read(tensors.outputs[t]), SumOf(own_part(counts[t]), group.ranks(), kDivisor));
      }
    });
  }
};

constexpr size_t kUneven[] = {9'001, 1, 6'002};

// Covers rows that cannot be divided evenly, a tensor with fewer elements than members, and a group that lacks a rank.
TEST_F(NcclReduceTest, MembersThatReceivePartsMakeOneReduceScatterOfThem) {
  NcclJob job(4, {.init_deadline = kLong});
  int expected = FakeNcclCalls("ReduceScatter");
  const int others = FakeNcclCalls("AllReduce") + FakeNcclCalls("AllGather") + FakeNcclCalls("Send");
  for (const WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kBfloat16}) {
    for (const Group& group : {Group::All(4), Group({0, 2, 3})}) {
      SCOPED_TRACE(absl::StrCat(Name(wire), ", ", group.size(), " members"));
      ReduceScatter(job, kUneven, wire, group);
      expected += group.size();
      EXPECT_EQ(FakeNcclCalls("ReduceScatter"), expected);
    }
  }
  EXPECT_EQ(FakeNcclCalls("AllReduce") + FakeNcclCalls("AllGather") + FakeNcclCalls("Send"), others);
  job.End();
}

// If sums are in the order of the ranks, Ronda does the additions, not NCCL. Each member receives only its own part of
// the result, and no NCCL call gathers the parts.
TEST_F(NcclReduceTest, PartsAreExchangedAloneWhereRondaAddsUp) {
  NcclJob job(3, {.init_deadline = kLong, .order = SumOrder::kOfRanks});
  const int others = FakeNcclCalls("AllReduce") + FakeNcclCalls("AllGather") + FakeNcclCalls("ReduceScatter");
  for (const WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16}) {
    for (const Group& group : {Group::All(3), Group({0, 2})}) ReduceScatter(job, kUneven, wire, group);
  }
  EXPECT_EQ(FakeNcclCalls("AllReduce") + FakeNcclCalls("AllGather") + FakeNcclCalls("ReduceScatter"), others);
  job.End();
}

// NCCL reduces a single tensor in place, in the trainer's memory, which is not registered with NCCL.
TEST_F(NcclReduceTest, ASingleTensorIsPackedOnlyIfItIsConverted) {
  constexpr size_t kCount = 200'000;
  constexpr int kRanks = 2;
  NcclJob job(kRanks);
  const auto kernels_of = [&](WireFormat wire) {
    const size_t before = job.cuda().finished_kernels();
    job.OnEveryRank([&](RankId, NcclRank& self) {
      const DeviceMemory tensor = self.Floats(std::vector<float>(kCount, 1.0f));
      ASSERT_EQ(self.Allreduce(tensor, Info("large"), wire), absl::OkStatus());
      self.Finish();
      EXPECT_EQ(self.Read(tensor), std::vector<float>(kCount, kRanks));
    });
    return job.cuda().finished_kernels() - before;
  };
  EXPECT_EQ(kernels_of(WireFormat::kNone), 0u);
  EXPECT_EQ(kernels_of(WireFormat::kFloat16), size_t{2 * kRanks}) << "to pack and to unpack";
  job.End();
}

TEST_F(NcclReduceTest, OneTensorOfEqualPartsIsNotPacked) {
  NcclJob job(3, {.init_deadline = kLong});
  constexpr size_t kEven[] = {3 * 1024};
  const int allocations = FakeNcclAllocations();
  const int scatters = FakeNcclCalls("ReduceScatter");
  ReduceScatter(job, kEven, WireFormat::kNone, Group::All(3));
  EXPECT_EQ(FakeNcclCalls("ReduceScatter"), scatters + 3);
  EXPECT_EQ(FakeNcclAllocations(), allocations) << "no fusion buffer";
  job.End();
}

TEST_F(NcclReduceTest, LargePartsTravelInChunks) {
  constexpr size_t kChunk = 16 << 10;
  for (const SumOrder order : {SumOrder::kOfNccl, SumOrder::kOfRanks}) {
    NcclJob job(4, {.init_deadline = kLong, .order = order, .chunk_bytes = kChunk});
    for (const WireFormat wire : {WireFormat::kNone, WireFormat::kBfloat16}) {
      for (const Group& group : {Group::All(4), Group({0, 2, 3})}) ReduceScatter(job, kUneven, wire, group);
    }
    job.End();
  }
}

// Returns the results and residuals of rank 0 after an allreduce of several tensors with error feedback.
struct Outcome {
  std::vector<float> results;
  std::vector<float> residuals;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome AllreduceWithFeedback(NcclJob& job, WireFormat wire) {
  static constexpr size_t kCounts[] = {20'001, 7, 300, 5'000};
  Outcome outcome;
  job.OnEveryRank([&](RankId rank, NcclRank& self) {
    std::vector<DeviceMemory> memory;
    std::vector<Segment> segments;
    const auto place = [&](const std::vector<float>& values) {
      return memory.emplace_back(self.Floats(values)).data();
    };
    for (size_t count : kCounts) {
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = 1.0f + static_cast<float>((i * 37 + rank) % 1000) / 4099;
      segments.push_back(
          {.input = place(values), .output = place(std::vector<float>(count, kUntouched)), .count = count});
      segments.back().residual = reinterpret_cast<float*>(place(std::vector<float>(count, 0.0f)));
    }
    ASSERT_EQ(self.communicator().Reduce(
                  {.info = Info("feedback"), .segments = segments, .wire = wire, .postscale = {.divisor = 3}}),
              absl::OkStatus());
    self.Finish();
    for (size_t i = 0; rank == 0 && i < memory.size(); i += 3) {
      const auto append = [&](std::vector<float>* all, const DeviceMemory& from) {
        const std::vector<float> values = self.Read(from);
        all->insert(all->end(), values.begin(), values.end());
      };
      append(&outcome.results, memory[i + 1]);
      append(&outcome.residuals, memory[i + 2]);
    }
  });
  return outcome;
}

// Results have defined bits only if Ronda does the additions.
TEST_F(NcclReduceTest, ResultsAndResidualsDoNotDependOnTheChunks) {
  for (const WireFormat wire : {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kFp8E4M3}) {
    SCOPED_TRACE(Name(wire));
    std::vector<Outcome> outcomes;
    for (const size_t chunk_bytes : {NcclReduce::kChunkBytes, size_t{32} << 10, size_t{5'000}}) {
      NcclJob job(3, {.init_deadline = kLong, .order = SumOrder::kOfRanks, .chunk_bytes = chunk_bytes});
      outcomes.push_back(AllreduceWithFeedback(job, wire));
      job.End();
    }
    EXPECT_EQ(outcomes[1], outcomes[0]);
    EXPECT_EQ(outcomes[2], outcomes[0]);
    const bool keeps_errors = wire != WireFormat::kNone;
    EXPECT_EQ(std::ranges::any_of(outcomes[0].residuals, [](float error) { return error != 0; }), keeps_errors);
    EXPECT_EQ(std::ranges::count(outcomes[0].results, kUntouched), 0);
  }
}

// If NCCL does the additions, Ronda makes one NCCL call per chunk.
TEST_F(NcclReduceTest, AllreduceOfNcclTravelsInChunksToo) {
  constexpr size_t kChunk = 8 << 10;
  NcclJob job(3, {.init_deadline = kLong, .order = SumOrder::kOfNccl, .chunk_bytes = kChunk});
  const int calls = FakeNcclCalls("AllReduce");
  const Outcome outcome = AllreduceWithFeedback(job, WireFormat::kFloat16);
  EXPECT_EQ(std::ranges::count(outcome.results, kUntouched), 0);
  EXPECT_EQ(FakeNcclCalls("AllReduce") - calls, 3 * 7) << "50 KB of three ranks";
  job.End();
}

// Stands for a bucket of 1 GiB in chunks of 32 MiB, with all sizes divided by 16.
TEST_F(NcclReduceTest, MemoryIsBoundedWhateverTheSizeOfABucket) {
  constexpr size_t kChunk = 2 << 20;
  constexpr size_t kBucket = 64 << 20;
  for (const SumOrder order : {SumOrder::kOfNccl, SumOrder::kOfRanks}) {
    NcclJob job(2, {.init_deadline = kLong, .order = order, .chunk_bytes = kChunk});
    job.OnEveryRank([&](RankId, NcclRank& self) {
      const DeviceMemory tensor = self.Floats(std::vector<float>(kBucket / sizeof(float), 1.0f));
      const DeviceMemory small = self.Floats(std::vector<float>(10, 1.0f));
      for (const DeviceMemory* each : {&small, &tensor, &small}) {
        ASSERT_EQ(self.Allreduce(*each, Info("large"), WireFormat::kFloat16), absl::OkStatus());
      }
      self.Finish();
      EXPECT_TRUE(self.Read(tensor) == std::vector<float>(kBucket / sizeof(float), 2.0f));
    });
    // Each rank needs two chunks, and two more for the other ranks' data in an exchange. Each buffer begins smaller,
    // and is then replaced.
    EXPECT_LT(job.cuda().peak_bytes(), kBucket + 4 * 2 * kChunk + (1 << 20));
    job.End();
    EXPECT_EQ(job.cuda().Leaks(), "");
  }
}

// While NCCL waits for the other rank's first chunk, this rank packs its second chunk. The rounding errors of the
// second chunk then appear.
TEST_F(NcclReduceTest, TheNextChunkIsPackedWhileOneTravels) {
  constexpr size_t kChunk = 4 << 10;
  constexpr size_t kCount = 3 * kChunk / 2;  // three chunks of float16
  NcclJob job(2, {.init_deadline = kLong, .order = SumOrder::kOfNccl, .chunk_bytes = kChunk});
  const size_t kernels = job.cuda().finished_kernels();
  std::optional<StreamHold> hold(job.rank(1).stream());
  job.OnEveryRank([&](RankId rank, NcclRank& self) {
    const DeviceMemory tensor = self.Floats(std::vector<float>(kCount, 1.0f + 1.0f / 4096));
    const DeviceMemory result = self.Floats(std::vector<float>(kCount, kUntouched));
    const DeviceMemory residual = self.Floats(std::vector<float>(kCount, 0.0f));
    const Segment segment = {.input = tensor.data(),
                             .output = result.data(),
                             .count = kCount,
                             .residual = reinterpret_cast<float*>(residual.data())};
    ASSERT_EQ(
        self.communicator().Reduce({.info = Info("chunks"), .segments = {&segment, 1}, .wire = WireFormat::kFloat16}),
        absl::OkStatus());
    if (rank == 0) {
      const auto error_at = [&](size_t i) {
        float error = 0;
        std::memcpy(&error, ReadDevice(residual.data() + i * sizeof(float), sizeof(float)).data(), sizeof(error));
        return error;
      };
      while (job.cuda().finished_kernels() < kernels + 2) std::this_thread::yield();
      EXPECT_NE(error_at(0), 0);
      EXPECT_NE(error_at(kChunk / 2), 0);
      EXPECT_EQ(self.Read(result), std::vector<float>(kCount, kUntouched));
      EXPECT_EQ(error_at(kCount - 1), 0) << "the third chunk is packed where the first still is";
      hold.reset();
    }
    self.Finish();
    EXPECT_EQ(self.Read(result), std::vector<float>(kCount, 2.0f));
  });
  job.End();
}

}  // namespace
}  // namespace ronda::testing
