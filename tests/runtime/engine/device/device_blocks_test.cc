// SPDX-License-Identifier: Apache-2.0

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
  ResultData Acquire(size_t bytes) {
    absl::StatusOr<ResultData> block = blocks_->Acquire(bytes, "a test");
    EXPECT_TRUE(block.ok()) << block.status();
    return *std::move(block);
  }

  FakeCuda cuda_{{.devices = 1, .memory_bytes = size_t{1} << 20}};
  FakeClock clock_;
  std::shared_ptr<DeviceBlocks> blocks_ =
      DeviceBlocks::Create(*Device::Open(cuda_.table(), 0), RONDA_CUDA_DEVICE_MEMORY, &clock_);
};

TEST_F(DeviceBlocksTest, ReturnedBlockServesARequestOfAboutItsSize) {
  ResultData first = Acquire(1000);
  const std::byte* const place = first.get();
  first.reset();
  EXPECT_EQ(Acquire(1020).get(), place);
  EXPECT_EQ(cuda_.allocations(), 1u);
  const ResultData other = Acquire(5000);
  EXPECT_NE(other.get(), place);
}

TEST_F(DeviceBlocksTest, BlocksInUseAtTheSameTimeAreDifferentAndNeverEmpty) {
  std::vector<ResultData> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(Acquire(0));
  for (int i = 0; i < 4; ++i) EXPECT_NE(blocks[i], nullptr);
  for (int i = 1; i < 4; ++i) EXPECT_NE(blocks[i].get(), blocks[0].get());
}

// The test repeats a step that makes results of different sizes, one after another.
TEST_F(DeviceBlocksTest, AStepLikeThoseBeforeAllocatesNothing) {
  const auto step = [this] {
    for (const size_t kib : {100, 60, 30, 100}) Acquire(kib << 10);
    const ResultData first = Acquire(60 << 10), second = Acquire(60 << 10);
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
  for (const size_t kib : {100, 60, 30}) Acquire(kib << 10);
  clock_.Advance(absl::Seconds(50));
  Acquire(30 << 10);
  clock_.Advance(absl::Seconds(20));
  Acquire(10 << 10);
  EXPECT_EQ(cuda_.allocations(), 4u);
  for (const size_t kib : {60, 30, 10}) Acquire(kib << 10);
  EXPECT_EQ(cuda_.allocations(), 4u) << "no more is kept than was in use at once: enough has been freed";
  Acquire(100 << 10);
  EXPECT_EQ(cuda_.allocations(), 5u);
}

TEST_F(DeviceBlocksTest, SizesThatDoNotComeAgainDoNotFillTheDevice) {
  for (int i = 1; i < 100; ++i) Acquire(static_cast<size_t>(i) * 4096);
  EXPECT_NE(Acquire(900 << 10), nullptr);
}

TEST_F(DeviceBlocksTest, IdleBlockMakesRoom) {
  ResultData first = Acquire(600 << 10);
  first.reset();
  EXPECT_NE(Acquire(800 << 10), nullptr);
}

TEST_F(DeviceBlocksTest, TooMuchIsAnErrorThatSaysWhatFor) {
  const auto block = blocks_->Acquire(size_t{2} << 20, "what allgather 'x' returns");
  EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(block.status().message()),
              HasSubstr("2 MiB of device memory for what allgather 'x' returns"));
}

// Freeing memory waits for the device. An allocation also waits if it has to free idle blocks first.
TEST(DeviceBlocksOfABusyDevice, BlocksAreGivenBackWhileAnotherThreadWaitsForTheDevice) {
  FakeCuda cuda({.devices = 1, .memory_bytes = size_t{1} << 20, .frees = FakeCuda::Frees::kWaitForTheDevice});
  const std::shared_ptr<Device> device = *Device::Open(cuda.table(), 0);
  const auto stream = *DeviceStream::Create(device.get());
  const auto blocks = DeviceBlocks::Create(device, RONDA_CUDA_DEVICE_MEMORY);
  ResultData idle = *blocks->Acquire(600 << 10, "a test");
  ResultData used = *blocks->Acquire(1000, "a test");
  idle.reset();
  StreamHold hold(stream->handle());
  absl::StatusOr<ResultData> large;
  std::thread taker([&] { large = blocks->Acquire(800 << 10, "a test"); });
  while (cuda.waiting_frees() == 0) std::this_thread::yield();
  used.reset();
  EXPECT_TRUE(blocks->Acquire(1000, "a test").ok());
  hold.Release();
  taker.join();
  EXPECT_TRUE(large.ok()) << large.status();
}

class DeviceBlocksWithReaders : public DeviceBlocksTest {
 protected:
  // Acquires another block of the first block's size, and returns whether the pool hands out the first block again.
  bool ComesAgain() { return others_.emplace_back(Acquire(1000)).get() == place_; }

  void Finish(const std::unique_ptr<DeviceStream>& stream) {
    const std::unique_ptr<DeviceEvent> end = *device_->NewEvent();
    ASSERT_TRUE(end->Record(stream->handle()).ok());
    ASSERT_TRUE(end->Wait().ok());
  }

  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  const std::unique_ptr<DeviceStream> stream_ = *DeviceStream::Create(device_.get());
  std::vector<ResultData> others_;
  ResultData block_ = Acquire(1000);
  const std::byte* const place_ = block_.get();
};

// A block is not handed out again while a stream still reads it. No thread waits for the stream.
TEST_F(DeviceBlocksWithReaders, ABlockIsUsedAgainOnceItsReadersAreThroughWithIt) {
  const auto other = *DeviceStream::Create(device_.get());
  blocks_->AddReader(place_, stream_->handle());
  blocks_->AddReader(place_, other->handle());
  StreamHold first(stream_->handle()), second(other->handle());
  block_.reset();
  EXPECT_FALSE(ComesAgain());
  first.Release();
  Finish(stream_);
  EXPECT_FALSE(ComesAgain()) << "the other one reads it, too";
  second.Release();
  Finish(other);
  EXPECT_TRUE(ComesAgain());
}

TEST_F(DeviceBlocksWithReaders, WorkThatAReaderIsGivenLaterDoesNotCount) {
  blocks_->AddReader(place_, stream_->handle());
  block_.reset();
  Finish(stream_);
  const StreamHold hold(stream_->handle());
  EXPECT_TRUE(ComesAgain());
}

TEST_F(DeviceBlocksWithReaders, AReaderMayHaveReadItsLastBeforeTheBlockComesBack) {
  blocks_->AddReader(place_, stream_->handle());
  ASSERT_TRUE(blocks_->RecordLastRead(place_, stream_->handle()).ok());
  Finish(stream_);
  const StreamHold hold(stream_->handle());
  block_.reset();
  EXPECT_TRUE(ComesAgain());
}

TEST_F(DeviceBlocksWithReaders, ABlockWaitsForAReaderThatIsBeingCaptured) {
  blocks_->AddReader(place_, stream_->handle());
  cuda_.SetCapturing(stream_->handle(), 1);
  EXPECT_EQ(blocks_->RecordLastRead(place_, stream_->handle()).code(), absl::StatusCode::kInvalidArgument);
  block_.reset();
  EXPECT_FALSE(ComesAgain());
  cuda_.SetCapturing(stream_->handle(), 0);
  StreamHold hold(stream_->handle());
  EXPECT_FALSE(ComesAgain()) << "only now is there a point";
  hold.Release();
  Finish(stream_);
  EXPECT_TRUE(ComesAgain());
}

TEST_F(DeviceBlocksTest, BlocksMayOutliveWhoHandsThemOut) {
  {
    const ResultData block = Acquire(10);
    blocks_.reset();
  }
  EXPECT_EQ(cuda_.Leaks(), "");
}

}  // namespace
}  // namespace ronda
