// SPDX-License-Identifier: Apache-2.0

// Tests the implicit waits of the fake CUDA: in queues that streams share, and in allocations.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

// Three streams of device 0. The last one is held, so a wait for it blocks.
class Streams {
 public:
  explicit Streams(int queues) : cuda_({.devices = 2, .queues = queues}) {
    for (void** stream : {&waiting_, &other_, &held_}) EXPECT_EQ(table().create_stream(stream), kCudaSuccess);
    hold_ = std::make_unique<StreamHold>(held_);
  }

  // Makes the first stream wait for the held stream.
  void BlockAWait() {
    void* event = nullptr;
    ASSERT_EQ(table().create_event(0, &event), kCudaSuccess);
    ASSERT_EQ(table().record_event(event, held_), kCudaSuccess);
    ASSERT_EQ(table().wait_event(waiting_, event), kCudaSuccess);
  }

  // Enqueues work on the second stream that records whether the hold has already ended.
  void GiveOtherWork() {
    const auto note = [](void* self) {
      auto* const streams = static_cast<Streams*>(self);
      streams->is_late_.store(streams->is_released_.load());
    };
    ASSERT_EQ(fake_cuda_enqueue(other_, note, this), kCudaSuccess);
  }

  void Release() {
    is_released_.store(true);
    hold_->Release();
  }

  bool IsOtherIdle() const {
    int is_idle = -1;
    EXPECT_EQ(fake_cuda_is_idle(other_, &is_idle), kCudaSuccess);
    return is_idle == 1;
  }
  void AwaitOther() const {
    while (!IsOtherIdle()) absl::SleepFor(absl::Microseconds(50));
  }

  const ronda_cuda_plugin& table() const { return *cuda_.table(); }
  const FakeCuda& cuda() const { return cuda_; }
  bool is_late() const { return is_late_.load(); }

 private:
  const FakeCuda cuda_;
  void* waiting_ = nullptr;
  void* other_ = nullptr;
  void* held_ = nullptr;
  std::unique_ptr<StreamHold> hold_;
  std::atomic<bool> is_released_{false};
  std::atomic<bool> is_late_{false};
};

TEST(FakeQueuesTest, ABlockedWaitHoldsUpTheStreamsInItsQueue) {
  Streams streams(1);
  streams.BlockAWait();
  streams.GiveOtherWork();
  EXPECT_FALSE(streams.IsOtherIdle());
  streams.Release();
  streams.AwaitOther();
  EXPECT_TRUE(streams.is_late());
}

TEST(FakeQueuesTest, StreamsOfOtherQueuesGoOn) {
  Streams streams(2);
  streams.BlockAWait();  // in the first queue, with the held stream
  streams.GiveOtherWork();
  streams.AwaitOther();
  EXPECT_FALSE(streams.is_late());
  streams.Release();
}

// A kernel leaves the queue when it begins, so it blocks only later work in its own stream.
TEST(FakeQueuesTest, WorkThatRunsHoldsUpNoOtherStream) {
  Streams streams(1);
  streams.GiveOtherWork();
  streams.AwaitOther();
  EXPECT_FALSE(streams.is_late());
  streams.Release();
}

TEST(FakeQueuesTest, DevicesHaveQueuesOfTheirOwn) {
  Streams streams(1);
  streams.BlockAWait();
  ASSERT_EQ(streams.table().use_device(1), kCudaSuccess);
  void* event = nullptr;
  ASSERT_EQ(streams.table().create_event(0, &event), kCudaSuccess);
  ASSERT_EQ(streams.table().record_event(event, nullptr), kCudaSuccess);
  EXPECT_EQ(streams.table().synchronize_event(event), kCudaSuccess);
  ASSERT_EQ(streams.table().use_device(0), kCudaSuccess);
  streams.Release();
}

TEST(FakeAllocationsTest, MayWaitForAllWorkOfTheirDevice) {
  const FakeCuda cuda({.devices = 2, .allocations = FakeCuda::Options::Allocations::kWaitForTheDevice});
  for (const ronda_cuda_memory kind : {RONDA_CUDA_DEVICE_MEMORY, RONDA_CUDA_PINNED_HOST_MEMORY}) {
    StreamHold hold(nullptr);
    void* memory = nullptr;
    std::thread allocating([&] {
      EXPECT_EQ(cuda.table()->allocate(kind, 8, &memory), kCudaSuccess);
      EXPECT_EQ(FakeCuda::HostWaitsOfThisThread(), 1u);
    });
    while (cuda.waiting_allocations() == 0) absl::SleepFor(absl::Microseconds(50));
    std::thread elsewhere([&] {
      void* other = nullptr;
      EXPECT_EQ(cuda.table()->use_device(1), kCudaSuccess);
      EXPECT_EQ(cuda.table()->allocate(kind, 8, &other), kCudaSuccess);
    });
    elsewhere.join();
    EXPECT_EQ(cuda.waiting_allocations(), 1) << "the other device has no work";
    EXPECT_EQ(memory, nullptr);
    hold.Release();
    allocating.join();
    EXPECT_NE(memory, nullptr);
  }
}

}  // namespace
}  // namespace ronda::testing
