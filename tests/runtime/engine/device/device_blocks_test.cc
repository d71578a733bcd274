#include "runtime/engine/device/device_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

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
  std::shared_ptr<DeviceBlocks> blocks_ =
      DeviceBlocks::Create(*Device::Open(cuda_.table(), 0), RONDA_CUDA_DEVICE_MEMORY);
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

TEST_F(DeviceBlocksTest, NoMoreIsKeptThanWasInUseAtOnce) {
  for (int i = 1; i < 100; ++i) Take(static_cast<size_t>(i) * 4096);
  // All of these together would not fit into the device.
  EXPECT_GT(cuda_.allocations(), 1u);
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

TEST_F(DeviceBlocksTest, BlocksMayOutliveWhoHandsThemOut) {
  {
    const ResultData block = Take(10);
    blocks_.reset();
  }
  EXPECT_EQ(cuda_.Leaks(), "");
}

}  // namespace
}  // namespace ronda
