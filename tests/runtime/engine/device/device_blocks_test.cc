#include "runtime/engine/device/device_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fakes.h"

namespace ronda {
namespace {

using ::ronda::testing::FakeClock;
using ::ronda::testing::FakeCuda;
using ::ronda::testing::StreamHold;
using ::testing::HasSubstr;

class DeviceBlocksTest : public ::testing::Test {
 protected:
  ResultData Take(size_t bytes) {
    absl::StatusOr<ResultData> block = blocks_->Take(bytes, "a test");
    EXPECT_TRUE(block.ok()) << block.status();
    return *std::move(block);
  }

  FakeCuda cuda_{{.devices = 1, .memory_bytes = size_t{1} << 20}};
  FakeClock clock_;
  std::shared_ptr<DeviceBlocks> blocks_ =
      DeviceBlocks::Create(*Device::Open(cuda_.table(), 0), RONDA_CUDA_DEVICE_MEMORY, &clock_);
};

TEST_F(DeviceBlocksTest, WhatIsGivenBackServesWhatIsAboutAsLarge) {
  ResultData first = Take(1000);
  const std::byte* const place = first.get();
  first.reset();
  EXPECT_EQ(Take(1020).get(), place);
  EXPECT_EQ(cuda_.allocations(), 1u);
  const ResultData other = Take(5000);
  EXPECT_NE(other.get(), place);
}

TEST_F(DeviceBlocksTest, BlocksInUseAtTheSameTimeAreDifferentAndNeverEmpty) {
  std::vector<ResultData> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(Take(0));
  for (int i = 0; i < 4; ++i) EXPECT_NE(blocks[i], nullptr);
  for (int i = 1; i < 4; ++i) EXPECT_NE(blocks[i].get(), blocks[0].get());
}

// Results of different sizes, one after the other.
TEST_F(DeviceBlocksTest, AStepLikeThoseBeforeAllocatesNothing) {
  const auto step = [this] {
    for (const size_t kib : {100, 60, 30, 100}) Take(kib << 10);
    const ResultData first = Take(60 << 10), second = Take(60 << 10);
  };
  step();
  EXPECT_EQ(cuda_.allocations(), 4u);
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Hours(1));
    step();
  }
  EXPECT_EQ(cuda_.allocations(), 4u) << "nor has anything been freed";
}

TEST_F(DeviceBlocksTest, BlocksUnusedForLongAreFreedWhenOtherMemoryIsNeeded) {
  for (const size_t kib : {100, 60, 30}) Take(kib << 10);
  clock_.Advance(absl::Seconds(50));
  Take(30 << 10);
  clock_.Advance(absl::Seconds(20));
  Take(10 << 10);
  EXPECT_EQ(cuda_.allocations(), 4u);
  for (const size_t kib : {60, 30, 10}) Take(kib << 10);
  EXPECT_EQ(cuda_.allocations(), 4u) << "no more is kept than was in use at once: enough has been freed";
  Take(100 << 10);
  EXPECT_EQ(cuda_.allocations(), 5u);
}

TEST_F(DeviceBlocksTest, SizesThatDoNotComeAgainDoNotFillTheDevice) {
  for (int i = 1; i < 100; ++i) Take(static_cast<size_t>(i) * 4096);
  EXPECT_NE(Take(900 << 10), nullptr);
}

TEST_F(DeviceBlocksTest, WhatIsIdleMakesRoom) {
  ResultData first = Take(600 << 10);
  first.reset();
  EXPECT_NE(Take(800 << 10), nullptr);
}

TEST_F(DeviceBlocksTest, TooMuchIsAnErrorThatSaysWhatFor) {
  const auto block = blocks_->Take(size_t{2} << 20, "what allgather 'x' returns");
  EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(block.status().message()),
              HasSubstr("2 MiB of device memory for what allgather 'x' returns"));
}

// To free memory is to wait for the device, and so is, now and then, to get some.
TEST(DeviceBlocksOfABusyDevice, BlocksAreGivenBackWhileAnotherThreadWaitsForTheDevice) {
  FakeCuda cuda({.devices = 1, .memory_bytes = size_t{1} << 20, .frees = FakeCuda::Frees::kWaitForTheDevice});
  const std::shared_ptr<Device> device = *Device::Open(cuda.table(), 0);
  const auto stream = *DeviceStream::Create(device.get());
  const auto blocks = DeviceBlocks::Create(device, RONDA_CUDA_DEVICE_MEMORY);
  ResultData idle = *blocks->Take(600 << 10, "a test");
  ResultData used = *blocks->Take(1000, "a test");
  idle.reset();
  StreamHold hold(stream->handle());
  absl::StatusOr<ResultData> large;
  std::thread taker([&] { large = blocks->Take(800 << 10, "a test"); });
  while (cuda.waiting_frees() == 0) std::this_thread::yield();
  used.reset();
  EXPECT_TRUE(blocks->Take(1000, "a test").ok());
  hold.Release();
  taker.join();
  EXPECT_TRUE(large.ok()) << large.status();
}

// A block that a stream still uses is not handed out, and no thread waits for the stream.
TEST_F(DeviceBlocksTest, ABlockMayBeGivenBackBehindWorkOfAStream) {
  const std::shared_ptr<Device> device = *Device::Open(cuda_.table(), 0);
  const auto stream = *DeviceStream::Create(device.get());
  ResultData first = Take(1000);
  const std::byte* const place = first.get();
  StreamHold hold(stream->handle());
  const absl::StatusOr<std::shared_ptr<const DeviceEvent>> point = blocks_->Note(stream->handle());
  ASSERT_TRUE(point.ok()) << point.status();
  first.get_deleter().after = *point;
  first.reset();
  const ResultData other = Take(1000);
  EXPECT_NE(other.get(), place);
  EXPECT_EQ(cuda_.allocations(), 2u);
  hold.Release();
  EXPECT_TRUE((*point)->Wait().ok());
  EXPECT_EQ(Take(1000).get(), place);
  EXPECT_EQ(cuda_.allocations(), 2u);
}

TEST_F(DeviceBlocksTest, BlocksMayOutliveWhoHandsThemOut) {
  {
    const ResultData block = Take(10);
    blocks_.reset();
  }
  EXPECT_EQ(cuda_.Leaks(), "");
}

}  // namespace
}  // namespace ronda
