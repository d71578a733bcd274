// SPDX-License-Identifier: Apache-2.0

// Tests that the fake is as strict about windows as NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/fake_nccl/fake_nccl_fixture.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kPage = 4096;

class FakeNcclWindowTest : public FakeNcclTest {
 protected:
  // A rank's blocking child communicator, and memory from ncclMemAlloc.
  struct Member {
    NcclHandle child = nullptr;
    std::byte* memory = nullptr;
    void* window = nullptr;
  };

  void OnMembers(const std::function<void(int, Rank&, Member&)>& body, size_t bytes = kPage) {
    OnRanks(2, [&](int i, Rank& rank) {
      Member member = {.child = SplitOff(rank, i)};
      void* memory = nullptr;
      EXPECT_EQ(OnDevice(rank, [&] { return nccl_.MemAlloc(&memory, bytes); }), NcclResult::kSuccess);
      member.memory = static_cast<std::byte*>(memory);
      body(i, rank, member);
      if (member.child != nullptr) nccl_.CommDestroy(member.child);
      nccl_.MemFree(memory);
    });
  }

  template <typename Call>
  static NcclResult OnDevice(const Rank& rank, const Call& call) {
    NcclResult result = NcclResult::kSuccess;
    EXPECT_EQ(rank.device->Call("a test",
                                [&](const ronda_cuda_plugin&) {
                                  result = call();
                                  return 0;
                                }),
              absl::OkStatus());
    return result;
  }

  NcclResult Register(Member& member, void* memory, size_t bytes = kPage) {
    return nccl_.CommWindowRegister(member.child, memory, bytes, &member.window, kNcclSymmetricWindow);
  }
  NcclResult Sum(const Rank& rank, const Member& member, size_t offset, size_t count, NcclDataType type) {
    return nccl_.AllReduce(member.memory + offset, member.memory + offset, count, type, NcclRedOp::kSum, member.child,
                           rank.stream->handle());
  }
  // Makes a call that hangs on the device. Expects a report that contains both texts.
  void ExpectHang(int i, Rank& rank, Member& member, size_t offset, const char* first, const char* second) {
    EXPECT_EQ(Sum(rank, member, offset, 4, NcclDataType::kInt32), NcclResult::kSuccess);
    std::string report;
    while (i == 0 && report.empty()) report = PopFakeNcclReport();
    if (i == 0) {
      EXPECT_THAT(report, AllOf(HasSubstr(first), HasSubstr(second)));
    }
    is_over_.arrive_and_wait();
    nccl_.CommAbort(std::exchange(member.child, nullptr));
    rank.Finish();
  }
};

// In float16, 2048 + 1 rounds to 2048, but 2050 is exact. So 2048 + 1 + 1 is 2050 only if the sum is rounded once.
TEST_F(FakeNcclWindowTest, SumsOf16BitTypesAreRoundedOnceInWindows) {
  constexpr uint16_t k2048 = 0x6800;
  constexpr uint16_t k1 = 0x3c00;
  constexpr uint16_t k2050 = 0x6801;
  OnRanks(3, [&](int i, Rank& rank) {
    Member member = {.child = SplitOff(rank, i)};
    void* memory = nullptr;
    ASSERT_EQ(OnDevice(rank, [&] { return nccl_.MemAlloc(&memory, kPage); }), NcclResult::kSuccess);
    member.memory = static_cast<std::byte*>(memory);
    ASSERT_EQ(Register(member, memory), NcclResult::kSuccess);
    const std::vector<uint16_t> values(6, i == 0 ? k2048 : k1);
    WriteDevice(member.memory, absl::string_view(reinterpret_cast<const char*>(values.data()), 12));
    EXPECT_EQ(Sum(rank, member, 0, 6, NcclDataType::kFloat16), NcclResult::kSuccess);
    rank.Finish();
    std::vector<uint16_t> sums(6);
    std::memcpy(sums.data(), ReadDevice(member.memory, 12).data(), 12);
    EXPECT_EQ(sums, std::vector<uint16_t>(6, k2050));
    EXPECT_EQ(nccl_.CommWindowDeregister(member.child, member.window), NcclResult::kSuccess);
    nccl_.CommDestroy(member.child);
    nccl_.MemFree(memory);
  });
  EXPECT_EQ(PopFakeNcclReport(), "");
}

TEST_F(FakeNcclWindowTest, RegistrationWaitsForAllRanksUntilTheParentIsAborted) {
  std::barrier<> are_ready(2);
  OnMembers([&](int i, Rank& rank, Member& member) {
    are_ready.arrive_and_wait();
    if (i == 0) {
      NcclResult result = NcclResult::kSuccess;
      std::thread caller([&] { result = Register(member, member.memory); });
      while (FakeNcclThreadsInCalls() == 0) std::this_thread::yield();
      nccl_.CommAbort(std::exchange(rank.handle, nullptr));
      caller.join();
      EXPECT_EQ(result, NcclResult::kInternalError);
      EXPECT_EQ(member.window, nullptr);
    }
    nccl_.CommAbort(std::exchange(member.child, nullptr));
  });
  EXPECT_EQ(PopFakeNcclReport(), "");
}

TEST_F(FakeNcclWindowTest, WindowsOfDifferentSizesAreReported) {
  OnMembers(
      [&](int i, Rank&, Member& member) {
        EXPECT_EQ(Register(member, member.memory, kPage * static_cast<size_t>(1 + i)), NcclResult::kUnhandledCudaError);
      },
      2 * kPage);
  for (int i = 0; i < 2; ++i) EXPECT_THAT(PopFakeNcclReport(), HasSubstr("8192 bytes"));
}

TEST_F(FakeNcclWindowTest, MemoryOfOtherAllocatorsIsRefused) {
  OnMembers([&](int, Rank& rank, Member& member) {
    const DeviceMemory other = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, kPage, "a test");
    EXPECT_EQ(Register(member, other.data()), NcclResult::kUnhandledCudaError);
    EXPECT_EQ(Register(member, member.memory + 64, 64), NcclResult::kInvalidArgument) << "not a page";
    EXPECT_EQ(Register(member, member.memory, 2 * kPage), NcclResult::kUnhandledCudaError) << "longer than the block";
  });
}

TEST_F(FakeNcclWindowTest, SecondWindowOfTheSameMemoryIsReported) {
  OnMembers([&](int, Rank&, Member& member) {
    ASSERT_EQ(Register(member, member.memory), NcclResult::kSuccess);
    void* const first = member.window;
    EXPECT_EQ(Register(member, member.memory), NcclResult::kInvalidUsage);
    EXPECT_EQ(nccl_.CommWindowDeregister(member.child, first), NcclResult::kSuccess);
    EXPECT_EQ(nccl_.CommWindowDeregister(member.child, first), NcclResult::kInvalidArgument) << "twice";
  });
  for (int i = 0; i < 2; ++i) EXPECT_THAT(PopFakeNcclReport(), HasSubstr("registered twice"));
}

TEST_F(FakeNcclWindowTest, WindowsOnSomeRanksOnlyAreReportedAndHang) {
  OnMembers([&](int i, Rank& rank, Member& member) {
    ASSERT_EQ(Register(member, member.memory), NcclResult::kSuccess);
    if (i == 1) {
      ASSERT_EQ(nccl_.CommWindowDeregister(member.child, member.window), NcclResult::kSuccess);
    }
    ExpectHang(i, rank, member, 0, "from window 1 at 0", "from memory that is not registered");
  });
  while (!PopFakeNcclReport().empty()) continue;
}

TEST_F(FakeNcclWindowTest, BuffersMustBeginAtTheSameOffsetOfTheirWindows) {
  OnMembers([&](int i, Rank& rank, Member& member) {
    ASSERT_EQ(Register(member, member.memory), NcclResult::kSuccess);
    ExpectHang(i, rank, member, 16 * static_cast<size_t>(i), "window 1 at 0", "window 1 at 16");
  });
  while (!PopFakeNcclReport().empty()) continue;
}

// NCCL's notes on 2.27.3: "all ranks of a communicator must pass buffers at the same offset in the same registration".
TEST_F(FakeNcclWindowTest, RanksMustUseTheSameWindow) {
  OnMembers(
      [&](int i, Rank& rank, Member& member) {
        ASSERT_EQ(Register(member, member.memory), NcclResult::kSuccess);
        ASSERT_EQ(Register(member, member.memory + kPage), NcclResult::kSuccess);
        ExpectHang(i, rank, member, kPage * static_cast<size_t>(i), "window 1 at 0", "window 2 at 0");
      },
      2 * kPage);
  while (!PopFakeNcclReport().empty()) continue;
}

TEST_F(FakeNcclWindowTest, MessagesMayUseDifferentOffsetsOfTheWindow) {
  OnMembers([&](int i, Rank& rank, Member& member) {
    ASSERT_EQ(Register(member, member.memory), NcclResult::kSuccess);
    WriteDevice(member.memory, i == 0 ? "sent" : "none");
    void* const stream = rank.stream->handle();
    const NcclResult result = i == 0 ? nccl_.Send(member.memory, 4, NcclDataType::kUint8, 1, member.child, stream)
                                     : nccl_.Recv(member.memory + 64, 4, NcclDataType::kUint8, 0, member.child, stream);
    EXPECT_EQ(result, NcclResult::kSuccess);
    rank.Finish();
    EXPECT_EQ(ReadDevice(member.memory + (i == 0 ? 0 : 64), 4), "sent");
  });
  EXPECT_EQ(PopFakeNcclReport(), "");
}

TEST_F(FakeNcclWindowTest, WindowThatNcclStillUsesMustNotBeDeregistered) {
  OnMembers([&](int i, Rank& rank, Member& member) {
    ASSERT_EQ(Register(member, member.memory), NcclResult::kSuccess);
    StreamHold hold(rank.stream->handle());
    ASSERT_EQ(Sum(rank, member, 0, 4, NcclDataType::kInt32), NcclResult::kSuccess);
    if (i == 0) {
      EXPECT_EQ(nccl_.CommWindowDeregister(member.child, member.window), NcclResult::kSuccess);
      EXPECT_THAT(PopFakeNcclReport(), HasSubstr("rank 0 deregisters a window while NCCL works on a stream"));
    }
    is_over_.arrive_and_wait();
    hold.Release();
    rank.Finish();
    is_over_.arrive_and_wait();
  });
}

TEST_F(FakeNcclWindowTest, CommunicatorWithoutWindowsRegistersLocallyOrNotAtAll) {
  for (const int version : {22809, 22902}) {
    fake_nccl_faults faults = kNoFaults;
    faults.no_windows = 1;
    faults.version = version;
    SetFakeNcclFaults(faults);
    OnMembers([&](int i, Rank&, Member& member) {
      if (i == 1) return;  // the call does not wait for other ranks
      EXPECT_EQ(Register(member, member.memory), NcclResult::kSuccess);
      EXPECT_EQ(member.window != nullptr, version == 22809);
      EXPECT_EQ(nccl_.CommWindowDeregister(member.child, member.window), NcclResult::kSuccess);
    });
  }
  SetFakeNcclFaults(kNoFaults);
}

}  // namespace
}  // namespace ronda::testing
