// SPDX-License-Identifier: Apache-2.0

// Tests buckets whose tensors are adjacent in the trainer's memory (RONDA_REDUCE_IN_PLACE). If they are adjacent on all
// ranks, NCCL reduces them there in one call. Otherwise they are packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kWarmSteps = 20;  // after which the schedule is locked
constexpr size_t kCounts[] = {5, 1, 0, 3, 8};
constexpr size_t kTensors = std::size(kCounts);

// Adjacent tensors in one piece of memory, and a second place to which a tensor can be moved.
class Neighbours {
 public:
  explicit Neighbours(DeviceRank& rank)
      : rank_(rank), memory_(rank, std::vector<float>(kRoom)), elsewhere_(rank, std::vector<float>(kRoom)) {
    size_t begin = 0;
    for (const size_t count : kCounts) {
      data_.push_back(static_cast<float*>(memory_.data()) + begin);
      begin += count;
    }
  }

  // Moves a tensor. Its old place is no longer used.
  void MoveAway(size_t tensor) { data_[tensor] = static_cast<float*>(elsewhere_.data()); }
  // Leaves a gap of one element before the last tensor.
  void LeaveGap() { ++data_.back(); }
  // Moves the first tensor behind the second one.
  void Swap() {
    float* const begin = static_cast<float*>(memory_.data());
    data_[1] = begin;
    data_[0] = begin + kCounts[1];
  }

  std::vector<Submission> Submissions(const TensorRequest& kind) const {
    std::vector<Submission> submissions;
    for (size_t i = 0; i < kTensors; ++i) {
      Submission& submission = submissions.emplace_back();
      submission.request = kind;
      submission.request.name = absl::StrCat("t", i);
      submission.request.memory = Memory::kCuda;
      submission.request.shape = {static_cast<int64_t>(kCounts[i])};
      submission.input = submission.output = data_[i];
      submission.stream = rank_.stream();
    }
    return submissions;
  }

  // Adds up tensor i, which has i + 1 + `addend` on this rank. Expects `ranks` * (i + 1) + `addends`.
  void Step(int ranks, float addend, float addends) {
    std::vector<float> all(kRoom);
    Fill(memory_, &all, addend);
    Fill(elsewhere_, &all, addend);
    const auto handles = SubmitAll(rank_.runtime(), Submissions({}));
    ASSERT_TRUE(handles.ok()) << handles.status();
    for (const auto& handle : *handles) EXPECT_EQ(handle->OrderBefore(rank_.stream()), absl::OkStatus());
    for (size_t i = 0; i < kTensors; ++i) {
      EXPECT_THAT(DeviceTensor::ReadAs<float>(rank_, data_[i], kCounts[i]),
                  Each(static_cast<float>(ranks) * static_cast<float>(i + 1) + addends))
          << "tensor " << i;
    }
    for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
  }

  DeviceTensor& memory() { return memory_; }

  static constexpr size_t kTotal = 17;         // elements
  static constexpr size_t kRoom = 2 * kTotal;  // in float32, as many elements in float64 fit

 private:
  void Fill(DeviceTensor& memory, std::vector<float>* values, float addend) {
    const auto* const begin = static_cast<const float*>(memory.data());
    for (size_t i = 0; i < kTensors; ++i) {
      if (data_[i] < begin || data_[i] >= begin + kRoom) continue;
      for (size_t k = 0; k < kCounts[i]; ++k) {
        (*values)[static_cast<size_t>(data_[i] - begin) + k] = static_cast<float>(i + 1) + addend;
      }
    }
    memory.Set(*values);
  }

  DeviceRank& rank_;
  DeviceTensor memory_;
  DeviceTensor elsewhere_;
  std::vector<float*> data_;
};

// Returns how many kernels all ranks launch in `step`, which every rank runs.
template <typename Step>
size_t KernelsOf(DeviceRank& rank, std::barrier<>& together, const Step& step) {
  together.arrive_and_wait();
  const size_t before = rank.fake().finished_kernels();
  together.arrive_and_wait();
  step();
  together.arrive_and_wait();
  const size_t after = rank.fake().finished_kernels();
  together.arrive_and_wait();
  return after - before;
}

float SumOfRanks(int ranks) { return static_cast<float>(ranks * (ranks - 1)) / 2; }

TEST(DeviceInPlace, AdjacentTensorsAreReducedWithoutKernels) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::barrier<> together(ranks);
    RunDeviceRanks({.size = ranks, .reduces_in_place = true}, [&](DeviceRank& rank) {
      Neighbours tensors(rank);
      const auto step = [&] { tensors.Step(ranks, static_cast<float>(rank.rank()), SumOfRanks(ranks)); };
      for (int i = 0; i < kWarmSteps; ++i) step();
      const int calls = FakeNcclCalls("AllReduce");
      EXPECT_EQ(KernelsOf(rank, together, step), 0u);
      EXPECT_EQ(FakeNcclCalls("AllReduce") > calls, ranks > 1);
    });
  }
}

TEST(DeviceInPlace, TensorsArePackedUnlessRankZeroHasTheSetting) {
  std::barrier<> together(2);
  RunDeviceRanks({.size = 2, .reduces_in_place = false}, [&](DeviceRank& rank) {
    Neighbours tensors(rank);
    const auto step = [&] { tensors.Step(2, 0, 0); };
    for (int i = 0; i < kWarmSteps; ++i) step();
    EXPECT_EQ(KernelsOf(rank, together, step), 2u * 2u);
  });
}

// The vote goes through a communicator with two levels.
TEST(DeviceInPlace, RanksOfSeveralHostsAgree) {
  constexpr int kRanks = 4;
  std::barrier<> together(kRanks);
  const DeviceJobOptions options = {
      .size = kRanks, .hosts = HostsFor("hierarchical-nccl", kRanks), .reduces_in_place = true};
  RunDeviceRanks(options, [&](DeviceRank& rank) {
    Neighbours tensors(rank);
    const auto step = [&] { tensors.Step(kRanks, static_cast<float>(rank.rank()), SumOfRanks(kRanks)); };
    for (int i = 0; i < kWarmSteps; ++i) step();
    EXPECT_EQ(KernelsOf(rank, together, step), 0u);
    if (rank.rank() == kRanks - 1) tensors.MoveAway(1);
    EXPECT_EQ(KernelsOf(rank, together, step), 2 * static_cast<size_t>(kRanks));
  });
}

TEST(DeviceInPlace, TensorThatHasMovedOnOneRankIsPackedOnAll) {
  using Move = void (*)(Neighbours&);
  const Move moves[] = {
      [](Neighbours& tensors) { tensors.MoveAway(0); }, [](Neighbours& tensors) { tensors.MoveAway(3); },
      [](Neighbours& tensors) { tensors.MoveAway(kTensors - 1); }, [](Neighbours& tensors) { tensors.LeaveGap(); }};
  for (const Move move : moves) {
    std::barrier<> together(3);
    RunDeviceRanks({.size = 3, .reduces_in_place = true}, [&](DeviceRank& rank) {
      Neighbours tensors(rank);
      const auto step = [&] { tensors.Step(3, static_cast<float>(rank.rank()), SumOfRanks(3)); };
      for (int i = 0; i < kWarmSteps; ++i) step();
      EXPECT_EQ(KernelsOf(rank, together, step), 0u);
      if (rank.rank() == 1) move(tensors);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(KernelsOf(rank, together, step), 3u * 2u);
      const Statistics statistics = rank.runtime().statistics();
      EXPECT_EQ(statistics.schedules_begun, statistics.schedules_left + 1) << "the schedule stays locked";
      together.arrive_and_wait();  // a rank that ends would unlock it
    });
  }
}

// Each rank's memory is in one piece, but tensor 0 of one rank lies where tensor 1 of the other rank begins.
TEST(DeviceInPlace, TensorsInAnotherOrderOnOneRankArePackedOnAll) {
  std::barrier<> together(2);
  RunDeviceRanks({.size = 2, .reduces_in_place = true}, [&](DeviceRank& rank) {
    Neighbours tensors(rank);
    if (rank.rank() == 1) tensors.Swap();
    const auto step = [&] { tensors.Step(2, static_cast<float>(rank.rank()), SumOfRanks(2)); };
    for (int i = 0; i < kWarmSteps; ++i) step();
    EXPECT_EQ(KernelsOf(rank, together, step), 2u * 2u);
  });
}

// Runs locked steps on random numbers, and returns the bits of the last step's results on rank 0, and the number of
// kernels.
struct Outcome {
  std::vector<uint8_t> bits;
  size_t kernels = 0;
};
Outcome ReduceRandom(TensorRequest kind, bool in_place) {
  Outcome outcome;
  std::barrier<> together(2);
  RunDeviceRanks({.size = 2, .reduces_in_place = in_place}, [&](DeviceRank& rank) {
    Neighbours tensors(rank);
    std::vector<uint8_t> bytes(Neighbours::kTotal * sizeof(double));
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>((i * 37 + static_cast<size_t>(rank.rank()) * 11) % 61);  // small finite numbers
    }
    const auto step = [&] {
      tensors.memory().Set(bytes);
      // The tensors of a smaller dtype fill only the first bytes of the memory.
      std::vector<Submission> submissions = tensors.Submissions(kind);
      auto* at = static_cast<std::byte*>(tensors.memory().data());
      for (Submission& submission : submissions) {
        submission.input = submission.output = at;
        at += TensorBytes(submission.request);
      }
      const auto handles = SubmitAll(rank.runtime(), submissions);
      ASSERT_TRUE(handles.ok()) << handles.status();
      for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
    };
    for (int i = 0; i < kWarmSteps; ++i) step();
    const size_t kernels = KernelsOf(rank, together, step);
    if (rank.rank() == 0) outcome = {.bits = tensors.memory().Get<uint8_t>(), .kernels = kernels};
  });
  return outcome;
}

TEST(DeviceInPlace, FactorsGiveTheBitsOfPackedTensors) {
  struct Case {
    TensorRequest kind;
    size_t kernels;  // of a rank
  };
  const Case cases[] = {
      {{.dtype = DType::kFloat32, .reduction = Reduction::kAverage}, 1},
      {{.dtype = DType::kFloat32, .reduction = Reduction::kAverage, .prescale = 1.0 / 3}, 2},
      {{.dtype = DType::kFloat16, .reduction = Reduction::kAverage, .prescale = 1.0 / 3}, 1},
      {{.dtype = DType::kBfloat16, .reduction = Reduction::kSum, .postscale = 0.7}, 1},
      {{.dtype = DType::kFloat64, .reduction = Reduction::kSum, .prescale = 0.3, .postscale = 1.7}, 2},
      {{.dtype = DType::kInt32, .reduction = Reduction::kSum}, 0},
      {{.dtype = DType::kInt32, .reduction = Reduction::kSum, .prescale = 3}, 2},  // packed and unpacked
      {{.dtype = DType::kFloat32, .reduction = Reduction::kProduct}, 0},
      {{.dtype = DType::kFloat32, .reduction = Reduction::kSum, .wire = WireFormat::kFloat16},
       2},  // packed and unpacked
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(absl::StrCat(Name(each.kind.dtype), " ", each.kind.prescale, " ", each.kind.postscale));
    const Outcome in_place = ReduceRandom(each.kind, true);
    EXPECT_EQ(in_place.bits, ReduceRandom(each.kind, false).bits);
    EXPECT_EQ(in_place.kernels, 2 * each.kernels);
  }
}

TEST(DeviceInPlace, RankThatIsLostEndsTheJob) {
  std::barrier<> together(3);
  RunDeviceRanks({.size = 3, .reduces_in_place = true, .expects_failure = true}, [&](DeviceRank& rank) {
    auto tensors = std::make_shared<Neighbours>(rank);
    rank.KeepAlive(tensors);
    for (int i = 0; i < kWarmSteps; ++i) tensors->Step(3, 0, 0);
    together.arrive_and_wait();
    if (rank.rank() == 2) {
      rank.runtime().Abandon(absl::AbortedError("given up"));
      return;
    }
    absl::Status status;
    for (int i = 0; i < 100 && status.ok(); ++i) {
      const auto handles = SubmitAll(rank.runtime(), tensors->Submissions({}));
      status = handles.status();
      for (size_t k = 0; handles.ok() && k < kTensors && status.ok(); ++k) status = (*handles)[k]->Wait();
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr("given up"));
  });
}

}  // namespace
}  // namespace ronda::testing
