// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_adasum_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using ::ronda::testing::FakeCuda;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Phases : public StreamMarks {
 public:
  void Mark(StreamPhase phase) override { marked.push_back(phase); }
  std::vector<StreamPhase> marked;
};

class DeviceAdasumPlaceTest : public ::testing::Test {
 protected:
  std::byte* Allocate(size_t bytes, size_t pairs = 1) {
    place_.Release();
    const absl::StatusOr<std::byte*> memory = place_.Allocate({.bytes = bytes, .pairs = pairs, .label = "a test"});
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.value_or(nullptr);
  }

  FakeCuda cuda_{{.devices = 1, .memory_bytes = size_t{1} << 20}};
  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  const std::unique_ptr<DeviceStream> stream_ = *DeviceStream::Create(device_.get());
  Phases phases_;
  DeviceAdasumOps place_{{.device = device_,
                          .stream = stream_->handle(),
                          .blocks = DeviceBlocks::Create(device_, RONDA_CUDA_DEVICE_MEMORY),
                          .marks = &phases_}};
};

TEST_F(DeviceAdasumPlaceTest, MemoryIsKeptAndServesWhateverIsSmaller) {
  std::byte* const memory = Allocate(100000);
  EXPECT_EQ(Allocate(1000), memory);
  EXPECT_EQ(Allocate(100000), memory);
  EXPECT_EQ(Allocate(0), memory);
  EXPECT_EQ(cuda_.allocations(), 2u) << "that, and the memory of dot products";
}

// Once an exchange is on the stream, an allocation could cause a deadlock: the allocation may wait for the device, the
// device for another rank, and that rank for this rank.
TEST_F(DeviceAdasumPlaceTest, RunningWorkAllocatesNoMemory) {
  double host[3] = {};
  const kernels::cuda::Extent extent = {.data = host, .count = 0};
  Allocate(1000, 3);
  const uint64_t before = cuda_.allocations();
  const std::vector<kernels::cuda::Extent> extents(3, extent);
  std::vector<double> dots(9);
  place_.Dots({.a = extents.data(), .b = extents.data(), .pair_count = 3, .dots = dots.data()}).IgnoreError();
  EXPECT_EQ(cuda_.allocations(), before);
}

TEST_F(DeviceAdasumPlaceTest, MemoryGrowsToTheLargestNeed) {
  Allocate(1000);
  std::byte* const larger = Allocate(600 << 10);
  EXPECT_EQ(Allocate(1000), larger);
  // The device has room for the new memory only if the earlier memory is freed first.
  EXPECT_NE(Allocate(900 << 10), nullptr);
}

TEST_F(DeviceAdasumPlaceTest, LackOfDeviceMemoryNamesTheTensor) {
  const absl::Status status = place_.Allocate({.bytes = 2 << 20, .label = "conv1/weight"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the Adasum of 'conv1/weight'"));
  EXPECT_NE(Allocate(1000), nullptr) << "memory that fits is still to be had";
}

TEST_F(DeviceAdasumPlaceTest, TheStreamIsMarkedWithWhatItDoes) {
  Allocate(1000);
  EXPECT_EQ(place_.Pack({}), absl::OkStatus());
  EXPECT_EQ(place_.Unpack({}), absl::OkStatus());
  EXPECT_EQ(place_.Dots({}), absl::OkStatus());
  EXPECT_EQ(place_.Combine({}), absl::OkStatus());
  EXPECT_THAT(phases_.marked, ElementsAre(StreamPhase::kPack, StreamPhase::kTransfer, StreamPhase::kUnpack,
                                          StreamPhase::kReduce, StreamPhase::kReduce));
}

TEST_F(DeviceAdasumPlaceTest, RefusalOfTheDeviceIsAnError) {
  double host[3] = {};
  const kernels::cuda::Extent extent = {.data = host, .count = 3};
  EXPECT_FALSE(place_.Dots({.a = &extent, .b = &extent, .pair_count = 1, .dots = host}).ok());
  EXPECT_FALSE(place_.Combine({.a = &extent, .b = &extent, .pair_count = 1, .dots = host}).ok());
}

}  // namespace
}  // namespace ronda
