// SPDX-License-Identifier: Apache-2.0

// Tests calls of lanes on memory that all ranks have registered together (RONDA_LANE_MEMORY_MB).
#include "runtime/engine/device/lane_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/runtime/engine/lane_calls.h"
#include "tests/testing/fake_cuda/fake_capture.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;
constexpr size_t kCount = 4;
constexpr int kGlobalMode = 0;  // cudaStreamCaptureModeGlobal, which forbids unsafe calls to all threads

// A block of a lane's memory, for floats, which are written and read on the rank's stream.
class Block {
 public:
  Block(DeviceRank& rank, CallerLane& lane, size_t count = kCount)
      : rank_(rank), memory_(lane.memory().value()), count_(count) {
    const absl::StatusOr<void*> block = memory_->Allocate(count * sizeof(float), rank.stream());
    EXPECT_EQ(block.status(), absl::OkStatus());
    data_ = static_cast<float*>(block.value_or(nullptr));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { EXPECT_EQ(memory_->Free(data_, rank_.stream()), absl::OkStatus()); }

  float* data() const { return data_; }
  size_t offset() const { return memory_->OffsetOf(data_).value(); }

  void Fill(float value) {
    const DeviceTensor values(rank_, std::vector<float>(count_, value));
    EXPECT_EQ(rank_.device().Call("a test's copy",
                                  [&](const ronda_cuda_plugin& cuda) {
                                    return cuda.copy(data_, values.data(), count_ * sizeof(float), rank_.stream());
                                  }),
              absl::OkStatus());
  }
  std::vector<float> Get() const { return DeviceTensor::ReadAs<float>(rank_, data_, count_); }

 private:
  DeviceRank& rank_;
  const std::shared_ptr<LaneMemory> memory_;
  const size_t count_;
  float* data_ = nullptr;
};

Submission Reduction(DeviceRank& rank, const float* input, float* output, size_t count = kCount) {
  return {.request = {.memory = Memory::kCuda, .shape = {static_cast<int64_t>(count)}},
          .input = input,
          .output = output,
          .stream = rank.stream()};
}

Submission Allgather(DeviceRank& rank, const float* input, float* output) {
  Submission submission = Reduction(rank, input, output);
  submission.request.op = OpType::kAllgather;
  submission.output_bytes = kCount * sizeof(float) * static_cast<size_t>(rank.runtime().topology().size);
  return submission;
}

// `input` has kCount elements for each rank.
Submission ReduceScatter(DeviceRank& rank, const float* input, float* output) {
  const auto size = static_cast<size_t>(rank.runtime().topology().size);
  Submission submission = Reduction(rank, input, output, kCount * size);
  submission.request.op = OpType::kReduceScatter;
  submission.output_bytes = kCount * sizeof(float);
  return submission;
}

float Own(DeviceRank& rank) { return static_cast<float>(rank.rank() + 1); }

class LaneMemoryTest : public ::testing::Test {
 protected:
  void TearDown() override {
    SetFakeNcclFaults(kNoFaults);
    EXPECT_EQ(PopFakeNcclReport(), "");
  }

  // Runs a job that must fail because the ranks' calls differ. `call` makes the call, and returns its status. The
  // failure of the job must match `matcher` on all ranks.
  template <typename Matcher>
  void ExpectDifference(const std::function<absl::Status(DeviceRank&, Calls&)>& call, const Matcher& matcher,
                        int64_t memory_mb = 1) {
    RunDeviceRanks({.size = 2, .lane_memory_mb = memory_mb, .expects_failure = true}, [&](DeviceRank& rank) {
      Calls calls(rank);
      call(rank, calls).IgnoreError();
      while (rank.runtime().failure().ok()) std::this_thread::yield();
      EXPECT_THAT(std::string(rank.runtime().failure().message()), matcher);
    });
    while (!PopFakeNcclReport().empty()) continue;  // of a call that NCCL could not carry out
  }
};

TEST_F(LaneMemoryTest, CollectivesInTheMemoryUseTheWindow) {
  const int windows = FakeNcclWindows();
  RunDeviceRanks({.size = 2, .cuda = {.delay_seed = 5}, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls calls(rank);
    ASSERT_EQ(calls.lane().memory().value()->bytes(), kMiB);
    Block one(rank, calls.lane()), whole(rank, calls.lane(), 2 * kCount);
    for (int step = 0; step < 3; ++step) {
      one.Fill(Own(rank));
      calls.MakeAndOrder(Reduction(rank, one.data(), one.data()));
      EXPECT_THAT(one.Get(), Each(3));
      one.Fill(Own(rank));
      calls.MakeAndOrder(Allgather(rank, one.data(), whole.data()));
      EXPECT_EQ(whole.Get(), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
      calls.MakeAndOrder(ReduceScatter(rank, whole.data(), one.data()));
      EXPECT_THAT(one.Get(), Each(2 * Own(rank)));
    }
  });
  EXPECT_EQ(FakeNcclWindows() - windows, 2);
}

TEST_F(LaneMemoryTest, AllgathersAndReduceScattersInPlaceMayUseAPartOfTheirBuffer) {
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls calls(rank);
    Block whole(rank, calls.lane(), 2 * kCount);
    float* const own = whole.data() + kCount * static_cast<size_t>(rank.rank());
    whole.Fill(Own(rank));
    calls.MakeAndOrder(Allgather(rank, own, whole.data()));
    EXPECT_EQ(whole.Get(), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
    calls.MakeAndOrder(ReduceScatter(rank, whole.data(), own));
    EXPECT_THAT(DeviceTensor::ReadAs<float>(rank, own, kCount), Each(2 * Own(rank)));
    Submission shifted = Allgather(rank, own + 1, whole.data());
    EXPECT_THAT(std::string(calls.lane().Carries(shifted).status().message()), HasSubstr("input and output overlap"));
  });
}

// An abort does not end copies that wait, so they are only for processes that end after a failure.
TEST_F(LaneMemoryTest, CopyEnginesAreUsedIfAllProcessesEndAfterAFailure) {
  for (const bool ends : {true, false}) {
    const int copies = FakeNcclCalls("copies");
    DeviceJobOptions options = {.size = 2, .lane_memory_mb = 1};
    options.runtime.stream_is_held = [](const std::string&) {};
    options.runtime.ends_when_held = ends;
    RunDeviceRanks(options, [](DeviceRank& rank) {
      Calls calls(rank);
      Block whole(rank, calls.lane(), 2 * kCount);
      whole.Fill(Own(rank));
      calls.MakeAndOrder(Allgather(rank, whole.data() + kCount * static_cast<size_t>(rank.rank()), whole.data()));
      EXPECT_EQ(whole.Get(), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
    });
    EXPECT_EQ(FakeNcclCalls("copies") - copies, ends ? 2 : 0);
  }
}

TEST_F(LaneMemoryTest, CallsInOtherMemoryGoOnAsBefore) {
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls calls(rank);
    Block block(rank, calls.lane());
    const DeviceTensor outside(rank, std::vector<float>(kCount, Own(rank)));
    auto* const data = static_cast<float*>(outside.data());
    calls.MakeAndOrder(Reduction(rank, data, data));
    EXPECT_THAT(outside.Get<float>(), Each(3));
    calls.MakeAndOrder(Reduction(rank, data, block.data()));  // on all ranks alike
    EXPECT_THAT(block.Get(), Each(6));
  });
}

TEST_F(LaneMemoryTest, EachLaneHasMemoryOfItsOwn) {
  const int windows = FakeNcclWindows();
  RunDeviceRanks({.size = 3, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls all(rank);
    const ProcessSetId pair = AddSet(rank.runtime(), {0, 1});
    if (rank.rank() == 2) return;
    Calls some(rank, pair);
    Block of_all(rank, all.lane()), of_some(rank, some.lane());
    EXPECT_EQ(of_all.offset(), of_some.offset());
    EXPECT_FALSE(some.lane().memory().value()->OffsetOf(of_all.data()).has_value());
    of_all.Fill(Own(rank));
    some.MakeAndOrder(Reduction(rank, of_all.data(), of_some.data()));  // from memory that is another lane's
    EXPECT_THAT(of_some.Get(), Each(3));
  });
  EXPECT_EQ(FakeNcclWindows() - windows, 3 + 2);
}

// The ranks find a difference while the device waits, or after NCCL has carried out the call.
TEST_F(LaneMemoryTest, DifferentOffsetsFailTheJobAndNameBothCalls) {
  ExpectDifference(
      [](DeviceRank& rank, Calls& calls) {
        Block first(rank, calls.lane()), second(rank, calls.lane());
        float* const data = rank.rank() == 0 ? first.data() : second.data();
        return calls.StatusOf(Reduction(rank, data, data));
      },
      AllOf(HasSubstr("in call 1 of lane 0"), HasSubstr("has called allreduce (4 x float32, memory 0, sum)"),
            HasSubstr("has called allreduce (4 x float32, memory 512, sum)")));
}

// NCCL may end the call with wrong numbers. Then no thread and no device waits, and the job fails a moment later.
TEST_F(LaneMemoryTest, DifferentOffsetsFailTheJobEvenIfNcclEndsTheCall) {
  fake_nccl_faults faults = kNoFaults;
  faults.overlooks_offsets = 1;
  SetFakeNcclFaults(faults);
  ExpectDifference(
      [](DeviceRank& rank, Calls& calls) {
        Block first(rank, calls.lane()), second(rank, calls.lane());
        Block& input = rank.rank() == 0 ? first : second;
        calls.MakeAndOrder(Reduction(rank, input.data(), first.data()));
        return absl::OkStatus();
      },
      AllOf(HasSubstr("allreduce (4 x float32, memory 0, sum)"),
            HasSubstr("allreduce (4 x float32, memory 512 to 0, sum)")));
}

// The label of this call is longer than a name in the flight recorder, and only its last character differs.
TEST_F(LaneMemoryTest, DifferenceAtTheEndOfALongLabelFailsTheJob) {
  ExpectDifference(
      [](DeviceRank& rank, Calls& calls) {
        constexpr size_t kFloats = kMiB / sizeof(float);
        const Block before(rank, calls.lane(), 10 * kFloats);
        Block input(rank, calls.lane(), kFloats), output(rank, calls.lane(), kFloats);
        Submission sum = Reduction(rank, input.data(), output.data(), kFloats / 2);
        sum.request.dtype = DType::kFloat64;
        sum.request.reduction = ronda::Reduction::kAverage;
        sum.request.prescale = rank.rank() == 0 ? -1.23457e-100 : -1.23457e-101;
        return calls.StatusOf(sum);
      },
      HasSubstr("131072 x float64, memory 10485760 to 11534336, average"), 16);
}

TEST_F(LaneMemoryTest, InsideOnOneRankAndOutsideOnAnotherFailsTheJob) {
  ExpectDifference(
      [](DeviceRank& rank, Calls& calls) {
        Block block(rank, calls.lane(), 2 * kCount);
        const DeviceTensor& outside = rank.Keep(std::vector<float>(2 * kCount, 1));
        auto* const input = static_cast<float*>(outside.data());
        return calls.StatusOf(Allgather(rank, input, rank.rank() == 0 ? block.data() : input + kCount));
      },
      AllOf(HasSubstr("allgather (4 x float32, memory outside to 0)"), HasSubstr("allgather (4 x float32)")));
}

TEST_F(LaneMemoryTest, InputOfAnAllgatherMustBeInsideOnAllRanksOrOnNone) {
  ExpectDifference(
      [](DeviceRank& rank, Calls& calls) {
        Block input(rank, calls.lane()), output(rank, calls.lane(), 2 * kCount);
        const DeviceTensor& outside = rank.Keep(std::vector<float>(kCount, 1));
        const auto* const data = rank.rank() == 0 ? input.data() : static_cast<const float*>(outside.data());
        return calls.StatusOf(Allgather(rank, data, output.data()));
      },
      AllOf(HasSubstr("memory inside to 512"), HasSubstr("memory outside to 512")));
}

TEST_F(LaneMemoryTest, PartsOfAnExchangeMustBeInsideOnBothRanks) {
  ExpectDifference(
      [](DeviceRank& rank, Calls& calls) {
        Block block(rank, calls.lane(), 2 * kCount);
        const DeviceTensor& outside = rank.Keep(std::vector<float>(2 * kCount, 1));
        const DirectPart inside = {.data = block.data(), .count = kCount};
        const DirectPart other = {.data = outside.data(), .count = kCount};
        LaneExchange exchange = {.dtype = DType::kFloat32, .stream = rank.stream()};
        exchange.sends.resize(2);
        exchange.receives.resize(2);
        if (rank.rank() == 0) exchange.sends[1] = inside;
        if (rank.rank() == 1) exchange.receives[0] = other;
        return Calls::StatusOf(calls.lane().Exchange(exchange));
      },
      AllOf(HasSubstr("in call 1 of lane 0, alltoall"), HasSubstr("rank 0 sends from the lane's memory to rank 1"),
            HasSubstr("which receives in other memory")));
}

TEST_F(LaneMemoryTest, ExchangesInTheMemoryMayUseDifferentOffsets) {
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls calls(rank);
    Block first(rank, calls.lane()), second(rank, calls.lane());
    Block& sent = rank.rank() == 0 ? first : second;
    Block& received = rank.rank() == 0 ? second : first;
    sent.Fill(Own(rank));
    LaneExchange exchange = {.dtype = DType::kFloat32, .stream = rank.stream()};
    exchange.sends.resize(2);
    exchange.receives.resize(2);
    const auto peer = static_cast<size_t>(1 - rank.rank());
    exchange.sends[peer] = {.data = sent.data(), .count = kCount};
    exchange.receives[peer] = {.data = received.data(), .count = kCount};
    const auto handle = calls.lane().Exchange(exchange);
    ASSERT_EQ(handle.status(), absl::OkStatus());
    EXPECT_EQ((*handle)->OrderBefore(rank.stream()), absl::OkStatus());
    EXPECT_THAT(received.Get(), Each(3 - Own(rank)));
  });
}

TEST_F(LaneMemoryTest, FullMemoryIsAnErrorThatNamesTheSettingAndTheSizes) {
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls calls(rank);
    const std::shared_ptr<LaneMemory> memory = calls.lane().memory().value();
    Block block(rank, calls.lane(), kMiB / sizeof(float) / 4 * 3);
    const absl::Status full = memory->Allocate(kMiB / 2, rank.stream()).status();
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(full.message()),
                AllOf(HasSubstr("no room for 524288 bytes in the memory of lane 0, which has 1048576 bytes"),
                      HasSubstr("RONDA_LANE_MEMORY_MB"), HasSubstr("786432 are in use"),
                      HasSubstr("the largest gap has 262144")));
    Block rest(rank, calls.lane(), kMiB / sizeof(float) / 4);
    EXPECT_EQ(memory->Free(rest.data() + 1, rank.stream()).code(), absl::StatusCode::kInvalidArgument);
  });
}

// The result must not depend on whether the device has already ended the work on freed blocks.
TEST_F(LaneMemoryTest, CapturedStreamGetsNoBlock) {
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls calls(rank);
    const std::shared_ptr<LaneMemory> memory = calls.lane().memory().value();
    EXPECT_EQ(fake_cuda_begin_capture(rank.stream(), kGlobalMode), 0);
    const absl::Status status = memory->Allocate(1, rank.stream()).status();
    void* graph = nullptr;
    EXPECT_EQ(fake_cuda_end_capture(rank.stream(), &graph), 0);
    fake_cuda_destroy_graph(graph);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("before or after the capture"));
  });
}

TEST_F(LaneMemoryTest, BlocksOutliveTheLane) {
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    Calls calls(rank);
    std::shared_ptr<LaneMemory> memory = calls.lane().memory().value();
    Block block(rank, calls.lane());
    block.Fill(Own(rank));
    calls.MakeAndOrder(Reduction(rank, block.data(), block.data()));
    rank.runtime().lanes().Remove(kGlobalProcessSet)->Drain();
    EXPECT_THAT(block.Get(), Each(3));
    EXPECT_THAT(std::string(memory->Allocate(1, rank.stream()).status().message()), HasSubstr("lane 0 has ended"));
    // A new lane has new memory.
    Calls again(rank);
    EXPECT_NE(again.lane().memory().value(), memory);
    Block other(rank, again.lane());
    again.MakeAndOrder(Reduction(rank, block.data(), other.data()));
    EXPECT_THAT(other.Get(), Each(6));
  });
}

TEST_F(LaneMemoryTest, RankThatCannotRegisterFailsTheJobOnAllRanks) {
  fake_nccl_faults faults = kNoFaults;
  faults.rank = 1;
  faults.fail_register = 1;
  SetFakeNcclFaults(faults);
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1, .expects_failure = true}, [](DeviceRank& rank) {
    const absl::Status status = rank.runtime().OpenLane(kGlobalProcessSet, nullptr, WaitLimits()).status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("registering memory as a window (RONDA_LANE_MEMORY_MB=0 on rank 0 does without)"),
                      HasSubstr("on rank 1"), HasSubstr("unhandled system error")));
  });
}

TEST_F(LaneMemoryTest, RankWithoutRoomFailsTheJobOnAllRanks) {
  RunDeviceRanks(
      {.size = 2, .cuda = {.memory_bytes = size_t{3} << 20}, .lane_memory_mb = 2, .expects_failure = true},
      [](DeviceRank& rank) {
        DeviceTensor& filled = rank.Keep(std::vector<float>(rank.rank() == 1 ? kMiB / 2 : 1));
        const absl::Status status = rank.runtime().OpenLane(kGlobalProcessSet, nullptr, WaitLimits()).status();
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("NCCL has no 2097152 bytes for tensors (RONDA_LANE_MEMORY_MB on rank 0)"),
                          HasSubstr("cuda:1")));
        static_cast<void>(filled);
      });
}

// Without windows the memory is registered on each rank, or not at all.
TEST_F(LaneMemoryTest, NcclWithoutWindowsOrBeforeThemUsesTheMemoryAllTheSame) {
  for (const int version : {22902, 22809, 21900}) {
    fake_nccl_faults faults = kNoFaults;
    faults.version = version;
    faults.no_windows = 1;
    SetFakeNcclFaults(faults);
    DeviceJobOptions options = {.size = 2, .lane_memory_mb = 1};
    options.runtime.stream_is_held = [](const std::string&) {};
    options.runtime.ends_when_held = true;
    RunDeviceRanks(options, [](DeviceRank& rank) {
      Calls calls(rank);
      Block block(rank, calls.lane());
      block.Fill(Own(rank));
      calls.MakeAndOrder(Reduction(rank, block.data(), block.data()));
      EXPECT_THAT(block.Get(), Each(3));
    });
  }
}

TEST_F(LaneMemoryTest, RanksWhoseCallsCannotBeComparedHaveNoMemory) {
  RunDeviceRanks({.size = 2, .lane_memory_mb = 1, .elsewhere = {1}}, [](DeviceRank& rank) {
    Calls calls(rank);
    EXPECT_THAT(std::string(calls.lane().memory().status().message()), HasSubstr("ranks on several hosts"));
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    calls.MakeAndOrder(DeviceSum("", rank, tensor, kCount));
    EXPECT_THAT(tensor.Get<float>(), Each(2));
  });
}

// Rank 0 has the setting.
TEST_F(LaneMemoryTest, FirstRankOfTheProcessSetDecides) {
  RunDeviceRanks({.size = 3, .lane_memory_mb = 1}, [](DeviceRank& rank) {
    const ProcessSetId pair = AddSet(rank.runtime(), {1, 2});
    if (rank.rank() == 0) return;
    Calls calls(rank, pair);
    EXPECT_THAT(std::string(calls.lane().memory().status().message()),
                HasSubstr("RONDA_LANE_MEMORY_MB is 0 on rank 1"));
  });
}

TEST_F(LaneMemoryTest, LanesHaveNoMemoryUnlessRequested) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    Calls calls(rank);
    EXPECT_THAT(std::string(calls.lane().memory().status().message()),
                HasSubstr("RONDA_LANE_MEMORY_MB is 0 on rank 0"));
  });
}

// The trainer's work behind which a block was freed may take long, and the process may go on after it.
TEST(LaneMemoryEndTest, MemoryThatAStreamStillUsesIsKeptAndTheDeviceStaysUsable) {
  const FakeCuda cuda(FakeCuda::Options{.devices = 1});
  const std::shared_ptr<Device> device = *Device::Open(cuda.table(), 0);
  device->set_timeout(absl::Milliseconds(1));
  const std::unique_ptr<DeviceStream> stream = *DeviceStream::Create(device.get());
  std::weak_ptr<std::byte> data;
  StreamHold hold(stream->handle());
  {
    const std::shared_ptr<std::byte> bytes(new std::byte[kMiB], [](const std::byte* memory) { delete[] memory; });
    data = bytes;
    LaneMemory memory({.device = device, .memory = {.data = bytes, .bytes = kMiB}});
    void* const block = memory.Allocate(1, stream->handle()).value();
    EXPECT_EQ(memory.Free(block, stream->handle()), absl::OkStatus());
  }
  EXPECT_FALSE(data.expired());
  hold.Release();
  EXPECT_EQ(device->CheckUsable(), absl::OkStatus());
}

}  // namespace
}  // namespace ronda::testing
