// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/stream_buffer.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "runtime/collectives/nccl/nccl_groups.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

constexpr size_t kUnit = 2 << 20;  // a buffer's size is a multiple of this

class StreamBufferTest : public ::testing::Test {
 protected:
  void Start(size_t memory_bytes = size_t{1} << 30) {
    cuda_.emplace(FakeCuda::Options{.devices = 1, .memory_bytes = memory_bytes});
    device_ = *Device::Open(cuda_->table(), 0);
    stream_ = *DeviceStream::Create(device_.get());
    library_ = LoadFakeNccl(cuda_->table());
    groups_.emplace(NcclGroups::Options{.device = device_, .library = library_});
    buffer_.emplace(StreamBuffer::Options{.device = device_.get(),
                                          .stream = stream_->handle(),
                                          .nccl = &library_->functions,
                                          .groups = &*groups_,
                                          .purpose = "a test"});
  }

  void TearDown() override {
    buffer_.reset();
    groups_.reset();
    stream_.reset();
    device_.reset();
    EXPECT_EQ(cuda_->Leaks(), "");
  }

  bool IsAllocated(const std::byte* block) const {
    int device = -1;
    EXPECT_EQ(cuda_->table()->device_of(block, &device), 0);
    return device == 0;
  }

  std::optional<FakeCuda> cuda_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
  std::shared_ptr<const NcclLibrary> library_;
  std::optional<NcclGroups> groups_;
  std::optional<StreamBuffer> buffer_;
};

TEST_F(StreamBufferTest, GivesTheSameMemoryUntilItDoesNotSuffice) {
  Start();
  std::byte* const first = *buffer_->Get(1);
  EXPECT_EQ(*buffer_->Get(kUnit), first);
  EXPECT_NE(*buffer_->Get(kUnit + 1), first);
}

// Freeing memory would wait for the device, and so for other ranks' work.
TEST_F(StreamBufferTest, OutgrownMemoryIsKeptAndGrowthDoubles) {
  Start();
  const size_t before = cuda_->allocations();
  std::vector<std::byte*> blocks;
  for (size_t units : {1, 2, 3, 4, 5, 8}) blocks.push_back(*buffer_->Get(units * kUnit));
  EXPECT_EQ(cuda_->allocations(), before + 4) << "of 1, 2, 4 and 8 units";
  EXPECT_EQ(blocks[2], blocks[3]);
  EXPECT_EQ(blocks[4], blocks[5]);
  for (const std::byte* block : blocks) EXPECT_TRUE(IsAllocated(block));
}

TEST_F(StreamBufferTest, GrowsByTheNeedWhereThereIsNoMoreMemory) {
  Start(8 * kUnit);
  ASSERT_EQ(buffer_->Get(3 * kUnit).status(), absl::OkStatus());
  EXPECT_EQ(buffer_->Get(4 * kUnit).status(), absl::OkStatus());
  EXPECT_EQ(buffer_->Get(5 * kUnit).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(buffer_->Get(4 * kUnit).status(), absl::OkStatus()) << "what there is stays";
}

}  // namespace
}  // namespace ronda::testing
