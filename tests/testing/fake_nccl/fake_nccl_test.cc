// SPDX-License-Identifier: Apache-2.0

// Tests that the fake is as strict as NCCL, so that tests fail if a caller relies on something that NCCL does not
// promise.
#include "tests/testing/fake_nccl/fake_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_capture.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/fake_nccl_fixture.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(FakeNcclTest, WorkReachesTheStreamOnlyWhenAskedFor) {
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, sizeof(int32_t), "a test");
    const int32_t own = 1 + i;
    WriteDevice(memory.data(), absl::string_view(reinterpret_cast<const char*>(&own), sizeof(own)));
    EXPECT_EQ(nccl_.AllReduce(memory.data(), memory.data(), 1, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                              rank.stream->handle()),
              NcclResult::kInProgress);
    const auto value = [&] {
      int32_t read = 0;
      std::memcpy(&read, ReadDevice(memory.data(), sizeof(read)).data(), sizeof(read));
      return read;
    };
    rank.Finish();
    EXPECT_EQ(value(), own);
    AwaitReady(rank);
    rank.Finish();
    EXPECT_EQ(value(), 3);
  });
}

// The exact sum 2048 + 1 + 1 + 1 rounds to 2052. If the ones are added to 2048 one after the other, and every sum is
// rounded, the result is 2048.
TEST_F(FakeNcclTest, SumsOf16BitTypesAreRoundedAtEveryHop) {
  constexpr uint16_t k2048 = 0x6800;
  constexpr uint16_t k1 = 0x3c00;
  constexpr uint16_t kExact = 0x6802;
  OnRanks(4, [&](int i, Rank& rank) {
    // There is one chunk per rank, and the sum of each chunk begins at a different rank in the ring.
    const std::vector<uint16_t> values(4, i == 0 ? k2048 : k1);
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 8, "a test");
    WriteDevice(memory.data(), absl::string_view(reinterpret_cast<const char*>(values.data()), 8));
    nccl_.AllReduce(memory.data(), memory.data(), 4, NcclDataType::kFloat16, NcclRedOp::kSum, rank.handle,
                    rank.stream->handle());
    AwaitReady(rank);
    rank.Finish();
    std::vector<uint16_t> sums(4);
    std::memcpy(sums.data(), ReadDevice(memory.data(), 8).data(), 8);
    EXPECT_NE(sums, std::vector<uint16_t>(4, kExact));
  });
}

TEST_F(FakeNcclTest, ReduceScatterGivesEachRankItsSumAndLeavesTheInputAlone) {
  OnRanks(3, [&](int i, Rank& rank) {
    const std::vector<int32_t> own = {10 * i, 10 * i + 1, 10 * i + 2};
    const DeviceMemory input = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 12, "a test");
    const DeviceMemory output = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 4, "a test");
    WriteDevice(input.data(), absl::string_view(reinterpret_cast<const char*>(own.data()), 12));
    const auto scatter = [&](void* to) {
      EXPECT_EQ(nccl_.ReduceScatter(input.data(), to, 1, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                                    rank.stream->handle()),
                NcclResult::kInProgress);
      AwaitReady(rank);
      rank.Finish();
    };
    const auto read = [](const void* from, size_t count) {
      std::vector<int32_t> values(count);
      std::memcpy(values.data(), ReadDevice(from, count * sizeof(int32_t)).data(), count * sizeof(int32_t));
      return values;
    };
    const int32_t sum = 30 + 3 * i;
    scatter(output.data());
    EXPECT_EQ(read(output.data(), 1), std::vector<int32_t>{sum});
    EXPECT_EQ(read(input.data(), 3), own);
    // An in-place operation changes only this rank's part.
    std::vector<int32_t> expected = own;
    expected[static_cast<size_t>(i)] = sum;
    scatter(input.data() + 4 * i);
    EXPECT_EQ(read(input.data(), 3), expected);
  });
}

TEST_F(FakeNcclTest, OutputOfAReduceScatterOverlapsItsInputInItsPlaceOnly) {
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 8, "a test");
    EXPECT_EQ(nccl_.ReduceScatter(memory.data(), memory.data() + 4 * (1 - i), 1, NcclDataType::kInt32, NcclRedOp::kSum,
                                  rank.handle, rank.stream->handle()),
              NcclResult::kInvalidArgument);
  });
  for (int i = 0; i < 2; ++i) EXPECT_THAT(PopFakeNcclReport(), HasSubstr("output overlaps its input"));
}

TEST_F(FakeNcclTest, AbortedOperationLeavesTheStream) {
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 8, "a test");
    if (i == 0) {
      // The other rank sends nothing.
      nccl_.Recv(memory.data(), 8, NcclDataType::kUint8, 1, rank.handle, rank.stream->handle());
      AwaitReady(rank);
      nccl_.CommAbort(rank.handle);
      rank.handle = nullptr;
      rank.Finish();
    }
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

// The peer would take bytes of the next operation for the rest of the aborted one, and stop the test.
TEST_F(FakeNcclTest, OperationBehindAnAbortedOneSendsNothing) {
  std::barrier<> is_aborted(2);
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    if (i == 1) is_aborted.arrive_and_wait();
    nccl_.AllReduce(memory.data(), memory.data(), 4, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                    rank.stream->handle());
    AwaitReady(rank);
    if (i == 0) {
      nccl_.Send(memory.data(), 64, NcclDataType::kUint8, 1, rank.handle, rank.stream->handle());
      AwaitReady(rank);
    } else {
      absl::SleepFor(absl::Milliseconds(5));  // it waits for more of the first operation
    }
    nccl_.CommAbort(rank.handle);
    rank.Finish();
    rank.handle = nullptr;
    if (i == 0) is_aborted.arrive_and_wait();
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

TEST_F(FakeNcclTest, MemoryOfTheHostIsRefused) {
  OnRanks(1, [&](int, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 4, "a test");
    const DeviceMemory pinned = *rank.device->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, 4, "a test");
    int32_t plain = 0;
    for (const void* const elsewhere : {static_cast<const void*>(pinned.data()), static_cast<const void*>(&plain)}) {
      EXPECT_EQ(nccl_.AllReduce(elsewhere, memory.data(), 1, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                                rank.stream->handle()),
                NcclResult::kInvalidArgument);
      EXPECT_THAT(PopFakeNcclReport(), HasSubstr("AllReduce is of memory that is not its device's"));
    }
  });
}

TEST_F(FakeNcclTest, TwoThreadsInOneCommunicatorAreReported) {
  OnRanks(1, [&](int, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 4, "a test");
    const auto sum = [&] {
      return nccl_.AllReduce(memory.data(), memory.data(), 1, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                             rank.stream->handle());
    };
    ASSERT_EQ(nccl_.GroupStart(), NcclResult::kSuccess);
    EXPECT_EQ(sum(), NcclResult::kSuccess);
    std::thread([&] { EXPECT_EQ(sum(), NcclResult::kInvalidUsage); }).join();
    EXPECT_THAT(PopFakeNcclReport(), HasSubstr("two threads of rank 0 use a communicator at the same time"));
    EXPECT_EQ(sum(), NcclResult::kSuccess);
    EXPECT_EQ(nccl_.GroupEnd(), NcclResult::kInProgress);
    AwaitReady(rank);
    rank.Finish();
    std::thread([&] { EXPECT_EQ(sum(), NcclResult::kInProgress); }).join();
    AwaitReady(rank);
    rank.Finish();
  });
}

// NCCL's user guide: "mixing registered and non-registered buffers can result in undefined behavior".
TEST_F(FakeNcclTest, BuffersThatAreRegisteredOnSomeRanksOnlyAreReportedAndHang) {
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    void* registration = nullptr;
    if (i == 1) {
      ASSERT_EQ(nccl_.CommRegister(rank.handle, memory.data(), 64, &registration), NcclResult::kSuccess);
    }
    nccl_.AllReduce(memory.data() + 16, memory.data() + 16, 4, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                    rank.stream->handle());
    AwaitReady(rank);
    std::string report;
    while (i == 0 && report.empty()) report = PopFakeNcclReport();
    if (i == 0) {
      EXPECT_THAT(report, AllOf(HasSubstr("AllReduce from memory that is not registered"),
                                HasSubstr("AllReduce from registered memory at 16")));
    }
    is_over_.arrive_and_wait();
    nccl_.CommAbort(std::exchange(rank.handle, nullptr));
    rank.Finish();
  });
  while (!PopFakeNcclReport().empty()) continue;  // of the other rank
}

// "keep the offset to the head address of the buffer same for each rank".
TEST_F(FakeNcclTest, RegisteredBuffersMustBeginAtTheSameOffsetOnAllRanks) {
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    void* registration = nullptr;
    ASSERT_EQ(nccl_.CommRegister(rank.handle, memory.data(), 64, &registration), NcclResult::kSuccess);
    std::byte* const data = memory.data() + 16 * i;
    nccl_.AllReduce(data, data, 4, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle, rank.stream->handle());
    AwaitReady(rank);
    std::string report;
    while (i == 0 && report.empty()) report = PopFakeNcclReport();
    if (i == 0) {
      EXPECT_THAT(report, AllOf(HasSubstr("registered memory at 0"), HasSubstr("registered memory at 16")));
    }
    is_over_.arrive_and_wait();
    nccl_.CommAbort(std::exchange(rank.handle, nullptr));
    rank.Finish();
  });
  while (!PopFakeNcclReport().empty()) continue;
}

// NCCL's user guide: operations of several communicators "must be launched in the same order on all ranks". Here the
// ranks launch them in different orders, so that they would wait for each other.
TEST_F(FakeNcclTest, CommunicatorsThatAreLaunchedInDifferentOrdersAreReportedAndHang) {
  NcclUniqueId second_id;
  ASSERT_EQ(nccl_.GetUniqueId(&second_id), NcclResult::kSuccess);
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    Rank second = {.device = rank.device};
    Begin(second, second_id, i, 2);
    const auto launch = [&](NcclHandle handle) {
      nccl_.AllReduce(memory.data(), memory.data(), 4, NcclDataType::kInt32, NcclRedOp::kSum, handle,
                      rank.stream->handle());
      while (true) {
        NcclResult state = NcclResult::kSuccess;
        nccl_.CommGetAsyncError(handle, &state);
        if (state != NcclResult::kInProgress) break;
      }
    };
    // If both ranks launch in the same order, the operations succeed.
    launch(rank.handle);
    launch(second.handle);
    rank.Finish();
    launch(i == 0 ? rank.handle : second.handle);
    launch(i == 0 ? second.handle : rank.handle);
    std::string report;
    while (i == 0 && report.empty()) report = PopFakeNcclReport();
    if (i == 0) {
      EXPECT_THAT(report, HasSubstr("launched in different orders on devices"));
    }
    is_over_.arrive_and_wait();
    std::thread other([&] { nccl_.CommAbort(std::exchange(second.handle, nullptr)); });
    nccl_.CommAbort(std::exchange(rank.handle, nullptr));
    other.join();
    rank.Finish();
  });
  while (!PopFakeNcclReport().empty()) continue;  // of the other rank
}

TEST_F(FakeNcclTest, AbortWaitsForTheStreamThatOthersHold) {
  OnRanks(2, [&](int, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    StreamHold hold(rank.stream->handle());
    nccl_.AllReduce(memory.data(), memory.data(), 4, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                    rank.stream->handle());
    AwaitReady(rank);
    std::atomic<bool> is_aborted = false;
    std::thread abort([&] {
      nccl_.CommAbort(rank.handle);
      is_aborted = true;
    });
    absl::SleepFor(absl::Milliseconds(20));  // nothing happens, which a test cannot wait for
    EXPECT_FALSE(is_aborted.load());
    hold.Release();
    abort.join();
    rank.handle = nullptr;
  });
}

TEST_F(FakeNcclTest, MemoryIsNotGivenBackWhileAPeerIsStopped) {
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    void* registration = nullptr;
    ASSERT_EQ(nccl_.CommRegister(rank.handle, memory.data(), 64, &registration), NcclResult::kSuccess);
    is_over_.arrive_and_wait();
    if (i == 1) return;
    fake_nccl_faults faults = kNoFaults;
    faults.stop_peers = 1;
    SetFakeNcclFaults(faults);
    std::atomic<bool> is_back = false;
    std::thread giving([&] {
      EXPECT_EQ(nccl_.CommDeregister(rank.handle, registration), NcclResult::kSuccess);
      is_back = true;
    });
    absl::SleepFor(absl::Milliseconds(20));  // nothing happens, which a test cannot wait for
    EXPECT_FALSE(is_back.load());
    SetFakeNcclFaults(kNoFaults);
    giving.join();
  });
}

TEST_F(FakeNcclTest, CommunicatorThatIsInProgressIsNotToBeUsed) {
  OnRanks(2, [&](int, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    const auto sum = [&] {
      return nccl_.AllReduce(memory.data(), memory.data(), 4, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                             rank.stream->handle());
    };
    void* registration = nullptr;
    ASSERT_EQ(sum(), NcclResult::kInProgress);
    EXPECT_EQ(sum(), NcclResult::kInvalidArgument);
    EXPECT_EQ(nccl_.CommRegister(rank.handle, memory.data(), 64, &registration), NcclResult::kInvalidArgument);
    EXPECT_EQ(nccl_.CommFinalize(rank.handle), NcclResult::kInvalidArgument);
    AwaitReady(rank);
    EXPECT_EQ(sum(), NcclResult::kInProgress);
    AwaitReady(rank);
    rank.Finish();
  });
  for (int i = 0; i < 2 * 3; ++i) EXPECT_THAT(PopFakeNcclReport(), HasSubstr("ncclInProgress"));
}

class FakeNcclSplitTest : public FakeNcclTest {
 protected:
  NcclResult Sum(const Rank& rank, NcclHandle child, const DeviceMemory& memory) const {
    return nccl_.AllReduce(memory.data(), memory.data(), 1, NcclDataType::kInt32, NcclRedOp::kSum, child,
                           rank.stream->handle());
  }
  // Makes the child's first call, which waits for the other rank, and runs `abort` meanwhile. Returns the result of the
  // call.
  template <typename Abort>
  NcclResult SumAlone(const Rank& rank, NcclHandle child, const Abort& abort) const {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 4, "a test");
    NcclResult result = NcclResult::kSuccess;
    std::thread caller([&] { result = Sum(rank, child, memory); });
    while (FakeNcclThreadsInCalls() == 0) std::this_thread::yield();
    abort();
    caller.join();
    return result;
  }
};

TEST_F(FakeNcclSplitTest, CallsOfAChildAreOnTheStreamWhenTheyReturn) {
  OnRanks(2, [&](int i, Rank& rank) {
    const NcclHandle child = SplitOff(rank, i);
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 4, "a test");
    const int32_t own = 1 + i;
    WriteDevice(memory.data(), absl::string_view(reinterpret_cast<const char*>(&own), sizeof(own)));
    EXPECT_EQ(Sum(rank, child, memory), NcclResult::kSuccess);
    rank.Finish();
    int32_t sum = 0;
    std::memcpy(&sum, ReadDevice(memory.data(), sizeof(sum)).data(), sizeof(sum));
    EXPECT_EQ(sum, 3);
    EXPECT_EQ(nccl_.CommFinalize(child), NcclResult::kSuccess);
    nccl_.CommDestroy(child);
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

TEST_F(FakeNcclSplitTest, AParentThatIsBeingSplitIsNotToBeUsed) {
  OnRanks(2, [&](int i, Rank& rank) {
    NcclConfig config = {.blocking = 1};
    NcclHandle child = nullptr;
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 4, "a test");
    ASSERT_EQ(nccl_.CommSplit(rank.handle, 0, i, &child, &config), NcclResult::kInProgress);
    EXPECT_EQ(child, nullptr) << "not yet";
    EXPECT_EQ(Sum(rank, rank.handle, memory), NcclResult::kInvalidArgument);
    AwaitReady(rank);
    nccl_.CommDestroy(child);
  });
  for (int i = 0; i < 2; ++i) EXPECT_THAT(PopFakeNcclReport(), HasSubstr("ncclInProgress"));
}

TEST_F(FakeNcclSplitTest, AbortOfTheParentEndsACallOfTheChild) {
  std::barrier<> is_split(2);
  OnRanks(2, [&](int i, Rank& rank) {
    const NcclHandle child = SplitOff(rank, i);
    is_split.arrive_and_wait();
    if (i == 0) {
      const NcclResult result = SumAlone(rank, child, [&] { nccl_.CommAbort(std::exchange(rank.handle, nullptr)); });
      EXPECT_EQ(result, NcclResult::kInternalError);
    }
    nccl_.CommAbort(child);
  });
  EXPECT_EQ(PopFakeNcclReport(), "");
}

// In the real NCCL, the thread would go on to use freed memory.
TEST_F(FakeNcclSplitTest, AbortOfTheChildInTheMiddleOfItsCallIsReported) {
  std::barrier<> is_split(2);
  OnRanks(2, [&](int i, Rank& rank) {
    const NcclHandle child = SplitOff(rank, i);
    is_split.arrive_and_wait();
    if (i == 0) {
      SumAlone(rank, child, [&] { nccl_.CommAbort(child); });
      EXPECT_THAT(PopFakeNcclReport(), HasSubstr("frees a communicator that a thread is in a call of"));
    } else {
      nccl_.CommAbort(child);
    }
  });
  while (!PopFakeNcclReport().empty()) continue;  // the abort frees the communicator in two steps
}

TEST_F(FakeNcclTest, GraphRepeatsTheOperationsOfAllRanks) {
  OnRanks(2, [&](int i, Rank& rank) {
    const DeviceMemory memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, sizeof(int32_t), "a test");
    const int32_t own = 1 + i;
    WriteDevice(memory.data(), absl::string_view(reinterpret_cast<const char*>(&own), sizeof(own)));
    const auto with_device = [&](const auto& call) {
      EXPECT_EQ(rank.device->Call("a test", [&](const ronda_cuda_plugin&) { return call(); }), absl::OkStatus());
    };
    constexpr int kThreadLocal = 1;
    void* graph = nullptr;
    with_device([&] { return fake_cuda_begin_capture(rank.stream->handle(), kThreadLocal); });
    EXPECT_EQ(nccl_.AllReduce(memory.data(), memory.data(), 1, NcclDataType::kInt32, NcclRedOp::kSum, rank.handle,
                              rank.stream->handle()),
              NcclResult::kInProgress);
    AwaitReady(rank);
    with_device([&] { return fake_cuda_end_capture(rank.stream->handle(), &graph); });
    const auto value = [&] {
      int32_t read = 0;
      std::memcpy(&read, ReadDevice(memory.data(), sizeof(read)).data(), sizeof(read));
      return read;
    };
    rank.Finish();
    EXPECT_EQ(value(), own);
    for (const int32_t sum : {3, 6, 12}) {
      with_device([&] { return fake_cuda_launch_graph(graph, rank.stream->handle()); });
      rank.Finish();
      EXPECT_EQ(value(), sum);
    }
    with_device([&] { return fake_cuda_destroy_graph(graph); });
  });
}

// Connects ranks on these devices, of which 0 and 1, and 2 and 3, are parts of the same GPU. Returns the final state,
// which must be the same on all ranks.
NcclResult StateOfRanksOn(int version, const std::vector<int>& devices) {
  const FakeCuda cuda({.devices = 4, .parts = 2});
  const std::shared_ptr<const NcclLibrary> library = LoadFakeNccl(cuda.table());
  const NcclFunctions& nccl = library->functions;
  fake_nccl_faults faults = kNoFaults;
  faults.version = version;
  SetFakeNcclFaults(faults);
  NcclUniqueId id;
  EXPECT_EQ(nccl.GetUniqueId(&id), NcclResult::kSuccess);
  std::vector<NcclHandle> handles(devices.size());
  NcclConfig config = {};
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    EXPECT_EQ(cuda.table()->use_device(devices[rank]), kCudaSuccess);
    EXPECT_EQ(
        nccl.CommInitRankConfig(&handles[rank], static_cast<int>(devices.size()), id, static_cast<int>(rank), &config),
        NcclResult::kInProgress);
  }
  EXPECT_EQ(cuda.table()->use_device(0), kCudaSuccess);
  std::vector<NcclResult> states(devices.size());
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    EXPECT_EQ(nccl.CommGetAsyncError(handles[rank], &states[rank]), NcclResult::kSuccess);
    EXPECT_EQ(states[rank], states[0]);
    nccl.CommDestroy(handles[rank]);
  }
  SetFakeNcclFaults(kNoFaults);
  return states[0];
}

TEST(FakeNcclDevicesTest, RanksOnOneDeviceAreRefused) {
  for (const int version : {22809, 23004, 23007}) {
    EXPECT_EQ(StateOfRanksOn(version, {0, 2}), NcclResult::kSuccess) << version;
    EXPECT_EQ(StateOfRanksOn(version, {1, 1}), NcclResult::kInvalidUsage) << version;
  }
}

TEST(FakeNcclDevicesTest, PartsOfOneGpuAreRefusedByItsBusUntilNcclComparesUuids) {
  EXPECT_EQ(StateOfRanksOn(22809, {0, 1}), NcclResult::kInvalidUsage);
  EXPECT_EQ(StateOfRanksOn(23004, {0, 1}), NcclResult::kInvalidUsage);
  EXPECT_EQ(StateOfRanksOn(23007, {0, 1}), NcclResult::kSuccess);
}

}  // namespace
}  // namespace ronda::testing
