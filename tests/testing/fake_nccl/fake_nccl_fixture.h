// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_FIXTURE_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_FIXTURE_H_

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {

// A fixture for communicators of the fake NCCL. Each rank is a thread with its own device.
class FakeNcclTest : public ::testing::Test {
 protected:
  // One rank of a communicator, with its own device.
  struct Rank {
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    NcclHandle handle = nullptr;

    void Finish() {
      const std::unique_ptr<DeviceEvent> end = *device->NewEvent();
      ASSERT_EQ(end->Record(stream->handle()), absl::OkStatus());
      ASSERT_EQ(end->Wait(), absl::OkStatus());
    }
  };

  NcclResult StateOf(const Rank& rank) const {
    NcclResult state = NcclResult::kSuccess;
    EXPECT_EQ(nccl_.CommGetAsyncError(rank.handle, &state), NcclResult::kSuccess);
    return state;
  }
  void AwaitReady(const Rank& rank) const {
    while (StateOf(rank) == NcclResult::kInProgress) std::this_thread::yield();
  }

  // Calls NCCL through the rank's Device, because NCCL uses the thread's current device.
  void Begin(Rank& rank, const NcclUniqueId& id, int number, int ranks) const {
    NcclConfig config = {.split_share = 1};
    NcclResult result = NcclResult::kSuccess;
    ASSERT_EQ(rank.device->Call("a test",
                                [&](const ronda_cuda_plugin&) {
                                  result = nccl_.CommInitRankConfig(&rank.handle, ranks, id, number, &config);
                                  return 0;
                                }),
              absl::OkStatus());
    ASSERT_EQ(result, NcclResult::kInProgress);
    AwaitReady(rank);
  }

  void OnRanks(int ranks, const std::function<void(int, Rank&)>& body) {
    NcclUniqueId id;
    ASSERT_EQ(nccl_.GetUniqueId(&id), NcclResult::kSuccess);
    std::vector<std::thread> threads;
    for (int i = 0; i < ranks; ++i) {
      threads.emplace_back([&, i] {
        Rank rank = {.device = *Device::Open(cuda_.table(), i)};
        rank.stream = *DeviceStream::Create(rank.device.get());
        Begin(rank, id, i, ranks);
        body(i, rank);
        if (rank.handle != nullptr) nccl_.CommDestroy(rank.handle);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Returns a blocking child communicator that shares its parent's resources.
  NcclHandle SplitOff(const Rank& rank, int number) const {
    NcclConfig config = {.blocking = 1};
    NcclHandle child = nullptr;
    EXPECT_EQ(nccl_.CommSplit(rank.handle, 0, number, &child, &config), NcclResult::kInProgress);
    AwaitReady(rank);
    EXPECT_NE(child, nullptr);
    return child;
  }

  FakeCuda cuda_{{.devices = 4}};
  std::barrier<> is_over_{2};
  const std::shared_ptr<const NcclLibrary> library_ = LoadFakeNccl(cuda_.table());
  const NcclFunctions& nccl_ = library_->functions;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_FAKE_NCCL_FIXTURE_H_
