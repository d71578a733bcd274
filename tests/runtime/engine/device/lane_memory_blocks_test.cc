// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/lane_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using ::ronda::testing::FakeCuda;
using ::ronda::testing::StreamHold;
using ::testing::HasSubstr;

constexpr size_t kBytes = 4096;

class LaneMemoryBlocksTest : public ::testing::Test {
 protected:
  LaneMemoryBlocksTest() {
    device_->set_timeout(absl::Milliseconds(50));
    memory_.emplace(
        LaneMemory::Options{.owner = "lane 0",
                            .device = device_,
                            .memory = {.data = {room_.data(), [this](std::byte*) { ++freed_; }}, .bytes = kBytes}});
  }

  void* Allocate(const DeviceStream& stream) {
    const absl::StatusOr<void*> block = memory_->Allocate(kBytes, stream.handle());
    EXPECT_EQ(block.status(), absl::OkStatus());
    return block.value_or(nullptr);
  }

  FakeCuda cuda_{{.devices = 1}};
  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  const DeviceMemory room_ = *device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, kBytes, "a test");
  const std::unique_ptr<DeviceStream> first_ = *DeviceStream::Create(device_.get());
  const std::unique_ptr<DeviceStream> second_ = *DeviceStream::Create(device_.get());
  int freed_ = 0;
  std::optional<LaneMemory> memory_;
};

TEST_F(LaneMemoryBlocksTest, NextStreamWaitsForTheStreamThatFreedTheBlock) {
  void* const block = Allocate(*first_);
  StreamHold hold(first_->handle());  // the stream still works on the block
  ASSERT_EQ(memory_->Free(block, first_->handle()), absl::OkStatus());
  const size_t awaited = cuda_.awaited_events();
  EXPECT_EQ(Allocate(*second_), block) << "no thread waits";
  EXPECT_EQ(cuda_.awaited_events() - awaited, 1u);
  EXPECT_EQ(memory_->Free(block, second_->handle()), absl::OkStatus());
  hold.Release();
  memory_.reset();
  EXPECT_EQ(freed_, 1);
}

TEST_F(LaneMemoryBlocksTest, StreamsThatHavePassedAreNotAwaited) {
  void* const block = Allocate(*first_);
  ASSERT_EQ(memory_->Free(block, first_->handle()), absl::OkStatus());
  const std::unique_ptr<DeviceEvent> end = *device_->NewEvent();
  ASSERT_EQ(end->Record(first_->handle()), absl::OkStatus());
  ASSERT_EQ(end->Wait(), absl::OkStatus());
  const size_t awaited = cuda_.awaited_events();
  EXPECT_EQ(memory_->Free(Allocate(*second_), second_->handle()), absl::OkStatus());
  EXPECT_EQ(cuda_.awaited_events(), awaited);
}

TEST_F(LaneMemoryBlocksTest, BlockOfAStreamThatIsBeingCapturedStaysInUse) {
  void* const block = Allocate(*first_);
  cuda_.SetCapturing(first_->handle(), 1);
  const absl::Status refused = memory_->Free(block, first_->handle());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("before or after the capture"));
  EXPECT_EQ(memory_->Allocate(1, second_->handle()).status().code(), absl::StatusCode::kResourceExhausted);
  cuda_.SetCapturing(first_->handle(), 0);
  EXPECT_EQ(memory_->Free(block, first_->handle()), absl::OkStatus());
}

// The trainer's stream may be busy for long. The memory then stays allocated, and the device stays usable.
TEST_F(LaneMemoryBlocksTest, MemoryThatAStreamStillUsesAfterTheTimeoutIsNeverFreed) {
  void* const block = Allocate(*first_);
  StreamHold hold(first_->handle());
  ASSERT_EQ(memory_->Free(block, first_->handle()), absl::OkStatus());
  memory_.reset();
  EXPECT_FALSE(device_->is_abandoned());
  EXPECT_EQ(freed_, 0);
}

}  // namespace
}  // namespace ronda
