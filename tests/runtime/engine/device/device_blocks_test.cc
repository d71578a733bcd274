#include "runtime/engine/device/device_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using ::ronda::testing::FakeCuda;
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

TEST_F(DeviceBlocksTest, BlocksMayOutliveWhoHandsThemOut) {
  {
    const ResultData block = Take(10);
    blocks_.reset();
  }
  EXPECT_EQ(cuda_.Leaks(), "");
}

}  // namespace
}  // namespace ronda
