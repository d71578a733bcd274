// SPDX-License-Identifier: Apache-2.0

// Tests that Ronda's buffers become symmetric NCCL windows on all ranks together. The fake NCCL reports an error and
// hangs if only some ranks use a window.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/collectives/nccl/nccl_job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

CallInfo Info(absl::string_view label, const Group* group = nullptr) {
  return {.label = label, .group = group, .limits = {.deadline = kLong}};
}

class NcclWindowsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    job_.reset();
    SetFakeNcclFaults(kNoFaults);
    EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
    EXPECT_EQ(PopFakeNcclReport(), "");
  }

  NcclJob& Start(int size, const fake_nccl_faults& faults = kNoFaults, size_t memory_bytes = size_t{1} << 30) {
    SetFakeNcclFaults(faults);
    return job_.emplace(
        size, NcclJobOptions{.init_deadline = kLong, .memory_bytes = memory_bytes, .windows = NcclWindows::kSymmetric});
  }
  int NewWindows() const { return FakeNcclWindows() - windows_before_; }

  std::optional<NcclJob> job_;
  const int windows_before_ = FakeNcclWindows();
};

// Sums two copies of `tensor`, so that the bucket is packed.
absl::Status SumPacked(NcclRank& self, const DeviceMemory& tensor, const CallInfo& info,
                       WireFormat wire = WireFormat::kNone) {
  const size_t half = tensor.size() / sizeof(float) / 2;
  float* const data = reinterpret_cast<float*>(tensor.data());
  const Segment segments[] = {{.input = data, .output = data, .count = half},
                              {.input = data + half, .output = data + half, .count = half}};
  return self.communicator().Reduce({.info = info, .segments = segments, .wire = wire});
}

TEST_F(NcclWindowsTest, EachCommunicatorHasItsOwnWindowsWhichEndBeforeTheirMemory) {
  NcclJob& job = Start(3);
  const Group pair({0, 1});
  job.OnEveryRank([&pair](RankId, NcclRank& self) {
    const DeviceMemory tensor = self.Floats(std::vector<float>(1000, 1.0f));
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(SumPacked(self, tensor, Info("of three")), absl::OkStatus());
      ASSERT_EQ(SumPacked(self, tensor, Info("of two", &pair)), absl::OkStatus());
    }
    self.Finish();
  });
  EXPECT_EQ(NewWindows(), 3 + 2) << "one buffer a rank and group";
  job.End();
  EXPECT_EQ(job.cuda().Leaks(), "");
}

// A bucket of two ranks gives only these two ranks a larger buffer. A window must have one size on all ranks.
TEST_F(NcclWindowsTest, BuffersGrowAlikeOnAllRanksOfACommunicator) {
  NcclJob& job = Start(3);
  const Group pair({0, 1});
  job.OnEveryRank([&pair](RankId, NcclRank& self) {
    const DeviceMemory small = self.Floats(std::vector<float>(100, 1.0f));
    const DeviceMemory large = self.Floats(std::vector<float>(1'000'000, 1.0f));
    ASSERT_EQ(SumPacked(self, small, Info("small")), absl::OkStatus());
    ASSERT_EQ(SumPacked(self, large, Info("of two", &pair)), absl::OkStatus());
    ASSERT_EQ(SumPacked(self, small, Info("small again")), absl::OkStatus());
    ASSERT_EQ(SumPacked(self, large, Info("large")), absl::OkStatus());
    ASSERT_EQ(self.communicator().Barrier(Info("all meet")), absl::OkStatus());
    self.Finish();
    EXPECT_EQ(self.Read(small), std::vector<float>(100, 9.0f));
    EXPECT_EQ(self.Read(large), std::vector<float>(1'000'000, 5.0f)) << "2 + 2 + 1";
  });
  EXPECT_EQ(NewWindows(), 3 + 2 + 3) << "a buffer of all, one of two, and a larger one of all";
  job.End();
  EXPECT_EQ(job.cuda().Leaks(), "");
}

// 2048 + 1 rounds to 2048 in float16. NCCL's ring rounds after each addition, but its kernels for windows do not.
TEST_F(NcclWindowsTest, SumsOf16BitNumbersAreRoundedOnce) {
  NcclJob& job = Start(3);
  job.OnEveryRank([](RankId rank, NcclRank& self) {
    const DeviceMemory tensor = self.Floats(std::vector<float>(12, rank == 0 ? 2048.0f : 1.0f));
    ASSERT_EQ(SumPacked(self, tensor, Info("halves"), WireFormat::kFloat16), absl::OkStatus());
    self.Finish();
    EXPECT_EQ(self.Read(tensor), std::vector<float>(12, 2050.0f));
  });
  job.End();
}

TEST_F(NcclWindowsTest, RankThatCannotRegisterEndsTheJobWithNcclsText) {
  fake_nccl_faults faults = kNoFaults;
  faults.rank = 1;
  faults.fail_register = 1;
  NcclJob& job = Start(2, faults);
  job.OnEveryRank([&job](RankId rank, NcclRank& self) {
    const absl::Status status = self.communicator().Barrier(Info("first"));
    EXPECT_FALSE(status.ok());
    if (rank == 1) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("registering memory as a window"), HasSubstr("RONDA_NCCL_WINDOWS=0"),
                        HasSubstr("ranks 0 and 1"), HasSubstr("on rank 1"), HasSubstr("unhandled system error")));
      EXPECT_EQ(self.communicator().failure(), status);
      job.rank(0).communicator().Abort();  // its call waits for this rank; its watch aborts when the job has failed
    }
    self.communicator().Abort();
    self.Finish();
  });
  job.End();
}

// The remaining memory would suffice for a smaller buffer, but the window of the other rank would be larger.
TEST_F(NcclWindowsTest, RankWithoutMemoryForAWindowOfTheSameSizeFails) {
  constexpr size_t kUnit = size_t{2} << 20;
  constexpr size_t kFloats = kUnit / sizeof(float);
  NcclJob& job = Start(2, kNoFaults, 10 * kUnit);
  std::latch first_calls_have_returned(2);
  job.OnEveryRank([&](RankId rank, NcclRank& self) {
    const DeviceMemory first = self.Floats(std::vector<float>(kFloats * 3 / 2, 1.0f));
    const DeviceMemory second = self.Floats(std::vector<float>(kFloats * 2 + 2, 1.0f));
    std::optional<DeviceMemory> waste;
    if (rank == 1) waste = *self.device().Allocate(RONDA_CUDA_DEVICE_MEMORY, kUnit, "a test");
    EXPECT_EQ(SumPacked(self, first, Info("of two units")), absl::OkStatus());
    first_calls_have_returned.arrive_and_wait();  // rank 1 aborts the communicator of rank 0 below
    const absl::Status status = SumPacked(self, second, Info("of four units, twice the buffer"));
    if (rank == 1) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      job.rank(0).communicator().Abort();
    }
    self.communicator().Abort();
    self.Finish();
  });
  job.End();
}

TEST_F(NcclWindowsTest, CommunicatorsWithoutWindowsRegisterTheBuffersLocally) {
  for (const int version : {22809, 22902}) {
    fake_nccl_faults faults = kNoFaults;
    faults.no_windows = 1;
    faults.version = version;
    const int registrations = FakeNcclRegistrations();
    NcclJob& job = Start(2, faults);
    job.OnEveryRank([](RankId, NcclRank& self) {
      const DeviceMemory tensor = self.Floats(std::vector<float>(10, 1.0f));
      ASSERT_EQ(SumPacked(self, tensor, Info("sum")), absl::OkStatus());
      self.Finish();
      EXPECT_EQ(self.Read(tensor), std::vector<float>(10, 2.0f));
    });
    EXPECT_EQ(FakeNcclRegistrations(), registrations + 2) << version;
    job.End();
  }
  EXPECT_EQ(NewWindows(), 0);
}

// Their kernels for symmetric memory can damage small messages.
TEST_F(NcclWindowsTest, WindowsOfOlderVersionsAreNotUsed) {
  fake_nccl_faults faults = kNoFaults;
  faults.version = 22803;
  NcclJob& job = Start(2, faults);
  job.OnEveryRank([](RankId, NcclRank& self) {
    const DeviceMemory tensor = self.Floats(std::vector<float>(10, 1.0f));
    ASSERT_EQ(SumPacked(self, tensor, Info("sum")), absl::OkStatus());
    self.Finish();
  });
  job.End();
  EXPECT_EQ(NewWindows(), 0);
}

}  // namespace
}  // namespace ronda::testing
