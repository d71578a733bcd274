#include "runtime/collectives/nccl/nccl_groups.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

constexpr int kRanks = 2;

// A rank with a communicator of all, and memory that is registered for it.
struct Rank {
  std::shared_ptr<Device> device;
  std::unique_ptr<Communicator> host;
  DeviceMemory memory;
  std::unique_ptr<NcclGroups> groups;
};

class NcclGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::thread> threads;
    for (int i = 0; i < kRanks; ++i) {
      threads.emplace_back([this, i] { Make(i); });
    }
    for (std::thread& thread : threads) thread.join();
  }

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
    rank.groups = std::make_unique<NcclGroups>(NcclGroups::Options{.rank = i,
                                                                   .size = kRanks,
                                                                   .device = rank.device,
                                                                   .library = LoadFakeNccl(cuda_.table()),
                                                                   .host = rank.host.get(),
                                                                   .job_failure = [] { return absl::OkStatus(); }});
    const CallInfo info = {.label = "a test"};
    const absl::StatusOr<NcclGroups::Entry*> entry = rank.groups->For(info, Members(info, i, kRanks));
    ASSERT_EQ(entry.status(), absl::OkStatus());
    ASSERT_EQ(rank.groups->Register(*entry, rank.memory.data(), 64), absl::OkStatus());
  }

  FakeCuda cuda_{{.devices = kRanks}};
  const std::shared_ptr<InProcessJob> job_ = std::make_shared<InProcessJob>(InProcessJob::Options{.size = kRanks});
  Rank ranks_[kRanks];
};

TEST_F(NcclGroupsTest, EndIsOrderlyWherePeersAnswer) {
  std::thread other([this] { ranks_[1].groups->End(); });
  ranks_[0].groups->End();
  other.join();
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  for (const Rank& rank : ranks_) EXPECT_FALSE(rank.device->is_abandoned());
}

// To take memory back from NCCL, NCCL asks the peers.
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
  EXPECT_EQ(LiveFakeNcclCommunicators(), kRanks) << "a thread owns the one, until the peer goes on";
  SetStopped(0);
  ranks_[1].groups->Abort();
}

}  // namespace
}  // namespace ronda::testing
