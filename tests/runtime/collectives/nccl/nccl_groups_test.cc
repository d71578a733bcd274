// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/collectives/nccl/nccl_memory.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;

// A rank with a communicator of all ranks, and with memory that is registered with it.
struct Rank {
  std::shared_ptr<Device> device;
  std::unique_ptr<Communicator> host;
  DeviceMemory memory;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<NcclGroups> groups;
  NcclGroups::Entry* entry = nullptr;
};

// Returns a function that sends NCCL's ids from rank 0 to the other ranks.
auto ShareOver(Communicator& host) {
  return [&host](const CallInfo& info, void* data, size_t bytes) {
    return host.Broadcast({.info = info, .data = data, .bytes = bytes, .root = 0});
  };
}

class NcclGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::thread> threads;
    for (int i = 0; i < kRanks; ++i) {
      threads.emplace_back([this, i] { Make(i); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Loads the NCCL library that the ranks use.
  virtual std::shared_ptr<const NcclLibrary> Library() { return LoadFakeNccl(cuda_.table()); }
  virtual NcclWindows Windows() const { return NcclWindows::kNone; }
  virtual absl::Duration InitDeadline() const { return absl::Minutes(1); }

  void TearDown() override {
    SetFakeNcclFaults(kNoFaults);
    while (LiveFakeNcclCommunicators() > 0) absl::SleepFor(absl::Milliseconds(1));
  }

  static void SetStopped(int stopped) {
    fake_nccl_faults faults = kNoFaults;
    faults.stop_peers = stopped;
    SetFakeNcclFaults(faults);
  }

  void Make(int i) {
    Rank& rank = ranks_[i];
    rank.device = *Device::Open(cuda_.table(), i);
    rank.host = std::make_unique<InProcessCommunicator>(job_, i);
    rank.memory = *rank.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 64, "a test");
    rank.groups = std::make_unique<NcclGroups>(
        NcclGroups::Options{.rank = i,
                            .size = kRanks,
                            .device = rank.device,
                            .library = Library(),
                            .windows = Windows(),
                            .share = ShareOver(*rank.host),
                            .init_deadline = InitDeadline(),
                            .end_deadline = absl::Seconds(1),
                            .job_failure = [] { return absl::OkStatus(); },
                            .fail_job = [this](const absl::Status& failure) { job_failure_ = failure; }});
    const CallInfo info = {.label = "a test"};
    const absl::StatusOr<NcclGroups::Entry*> entry = rank.groups->For(info, Members(info, i, kRanks));
    ASSERT_EQ(entry.status(), absl::OkStatus());
    rank.entry = *entry;
    rank.stream = *DeviceStream::Create(rank.device.get());
    if (Windows() == NcclWindows::kNone) {
      ASSERT_EQ(rank.groups->Register(rank.entry, rank.memory.data(), 64), absl::OkStatus());
    }
  }

  // Adds up the first `count` elements of each rank's memory.
  absl::Status Sum(int i, size_t count = 1) {
    const Rank& rank = ranks_[i];
    const CallInfo info = {.label = "a sum"};
    return rank.groups->Run(info, rank.entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
      return nccl.AllReduce(rank.memory.data(), rank.memory.data(), count, NcclDataType::kInt32, NcclRedOp::kSum,
                            handle, rank.stream->handle());
    });
  }
  void SumOnAll() {
    std::thread other([this] { EXPECT_EQ(Sum(1), absl::OkStatus()); });
    EXPECT_EQ(Sum(0), absl::OkStatus());
    other.join();
  }
  void EndAll() {
    std::thread other([this] { ranks_[1].groups->End(); });
    ranks_[0].groups->End();
    other.join();
  }

  FakeCuda cuda_{{.devices = kRanks}};
  const std::shared_ptr<InProcessJob> job_ = std::make_shared<InProcessJob>(InProcessJob::Options{.size = kRanks});
  Rank ranks_[kRanks];
  absl::Status job_failure_;  // that a rank has recorded
};

TEST_F(NcclGroupsTest, EndIsOrderlyWherePeersAnswer) {
  EndAll();
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  for (const Rank& rank : ranks_) EXPECT_FALSE(rank.device->is_abandoned());
}

// Before NCCL frees memory, it waits for an answer from its peers.
TEST_F(NcclGroupsTest, StoppedPeerHoldsUpNeitherTheEndNorFailureOrAbortMeanwhile) {
  SetStopped(1);
  std::atomic<bool> has_ended = false;
  std::thread end([&] {
    ranks_[0].groups->End();
    has_ended = true;
  });
  while (FakeNcclWaitingForPeers() == 0) std::this_thread::yield();
  EXPECT_EQ(ranks_[0].groups->failure(), absl::OkStatus());
  ranks_[0].groups->Abort();
  EXPECT_FALSE(has_ended.load());
  EXPECT_EQ(ranks_[0].groups->failure().code(), absl::StatusCode::kCancelled);
  end.join();
  ranks_[1].groups->Abort();
}

TEST_F(NcclGroupsTest, DeviceIsAbandonedWhereMemoryIsNotGivenBackInTime) {
  SetStopped(1);
  ranks_[0].groups->End();
  EXPECT_TRUE(ranks_[0].device->is_abandoned());
  EXPECT_EQ(LiveFakeNcclCommunicators(), 1 + 2) << "a thread owns the one, until the peer goes on";
  SetStopped(0);
  ranks_[1].groups->Abort();
}

TEST_F(NcclGroupsTest, CallsAreMadeWithoutAThreadOfNccls) {
  const int threads = FakeNcclThreads();
  for (int i = 0; i < 5; ++i) SumOnAll();
  EXPECT_EQ(FakeNcclThreads(), threads);
  EndAll();
  EXPECT_EQ(PopFakeNcclReport(), "");
}

// In the first call of each kind, NCCL connects the ranks, and so waits for all of them.
TEST_F(NcclGroupsTest, AbortEndsACallThatWaitsForARank) {
  absl::Status status;
  std::thread caller([&] { status = Sum(0); });
  while (FakeNcclThreadsInCalls() == 0) std::this_thread::yield();
  EXPECT_EQ(ranks_[0].groups->failure(), absl::OkStatus()) << "which does not wait for the call";
  ranks_[0].groups->Abort();
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_FALSE(ranks_[0].device->is_abandoned());
  EXPECT_EQ(LiveFakeNcclCommunicators(), 2) << "those of the other rank";
  EXPECT_EQ(PopFakeNcclReport(), "") << "nothing was freed while the call used it";
  EXPECT_EQ(Sum(0).code(), absl::StatusCode::kCancelled);
  ranks_[1].groups->Abort();
}

TEST_F(NcclGroupsTest, ARankWhosePeersDoNotEndAborts) {
  SumOnAll();
  ranks_[0].groups->End();
  EXPECT_THAT(std::string(ranks_[0].groups->failure().message()), ::testing::HasSubstr("a peer has not come to it"));
  EXPECT_FALSE(ranks_[0].device->is_abandoned());
  EXPECT_EQ(LiveFakeNcclCommunicators(), 2) << "those of the other rank";
  ranks_[1].groups->Abort();
  EXPECT_EQ(PopFakeNcclReport(), "");
}

class NcclGroupsOfOldNccl : public NcclGroupsTest {
 protected:
  std::shared_ptr<const NcclLibrary> Library() override {
    auto library = std::make_shared<NcclLibrary>(*NcclGroupsTest::Library());
    library->functions.CommSplit = nullptr;
    return library;
  }
};

TEST_F(NcclGroupsOfOldNccl, CallsAreMadeByAThreadWhereNothingCanBeSplit) {
  const int threads = FakeNcclThreads();
  for (int i = 0; i < 3; ++i) SumOnAll();
  EXPECT_EQ(FakeNcclThreads(), threads + 3 * kRanks);
  EndAll();
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

// NCCL has connected the ranks by then, so only their first registration can wait for longer than a moment.
class NcclWindowGroupsTest : public NcclGroupsTest {
 protected:
  NcclWindows Windows() const override { return NcclWindows::kSymmetric; }
  absl::Duration InitDeadline() const override { return absl::Seconds(1); }
};

TEST_F(NcclWindowGroupsTest, RegistrationThatAnotherRankDoesNotMakeIsReportedAndGivenUp) {
  const auto memory = *AllocateNcclMemory(*ranks_[0].device, Library()->functions, 64, "a test");
  ::testing::internal::CaptureStderr();
  const absl::Status status = ranks_[0].groups->RegisterInTime(
      ranks_[0].entry, memory, 64, {.warning = absl::Milliseconds(20), .deadline = absl::Seconds(1)});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("registering memory has taken longer than 20ms"));
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(job_failure_.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(job_failure_.message()), HasSubstr("on rank 0: registering memory has taken longer than 1s"));
  ranks_[1].groups->Abort();
  FreeNcclMemory(*ranks_[0].device, Library()->functions, memory);
}

}  // namespace
}  // namespace ronda::testing
