// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/launched_bucket.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/cuda/device.h"
#include "runtime/engine/device/attention.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

constexpr uint64_t kNumber = 7;

class LaunchedBucketTest : public ::testing::Test {
 protected:
  LaunchedBucketTest() {
    vote_->Reopen();
    *Decision() = 0;
  }

  std::unique_ptr<DeviceEvent> Point() {
    auto event = *device_->NewEvent();
    EXPECT_EQ(event->Record(own_->handle()), absl::OkStatus());
    return event;
  }
  void Launch() { bucket_.Launch(Point(), {.vote = vote_, .number = kNumber}); }
  absl::Status OrderBefore(const DeviceStream& stream, absl::string_view tensor = "x") {
    uint64_t id = 0;
    cuda_.table()->stream_id(stream.handle(), &id);
    return bucket_.OrderBefore(stream.handle(), id, tensor);
  }
  // Waits until `stream` has done its work so far. Returns whether that succeeded.
  bool Comes(const DeviceStream& stream) {
    const auto event = *device_->NewEvent();
    EXPECT_EQ(event->Record(stream.handle()), absl::OkStatus());
    return event->Wait().ok();
  }
  // Writes what the device would write.
  void Decide(uint32_t decision) {
    if (decision == 1) vote_->OpenGate();
    __atomic_store_n(Decision(), decision, __ATOMIC_RELEASE);
  }
  uint32_t* Decision() const { return reinterpret_cast<uint32_t*>(words_.data()); }

  FakeCuda cuda_{{.devices = 1}};
  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  DeviceMemory words_ = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, 2 * sizeof(uint32_t), "a vote");
  const std::shared_ptr<OpenVote> vote_ = std::make_shared<OpenVote>(
      nullptr, reinterpret_cast<uint32_t*>(words_.data()), reinterpret_cast<uint32_t*>(words_.data()) + 1);
  const std::unique_ptr<DeviceStream> own_ = *DeviceStream::Create(device_.get());
  const std::unique_ptr<DeviceStream> stream_ = *DeviceStream::Create(device_.get());
  Attention attention_;
  StreamOrder order_;
  LaunchedBucket bucket_{{.device = device_.get(), .attention = &attention_, .order = &order_}};
};

TEST_F(LaunchedBucketTest, AStreamWaitsForTheGateOfAnOpenVoteOnce) {
  Launch();
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  ASSERT_EQ(OrderBefore(*stream_, "another tensor"), absl::OkStatus());
  EXPECT_EQ(cuda_.awaited_words(), 1);
  EXPECT_EQ(order_.last_awaited(), kNumber);
  EXPECT_FALSE(*bucket_.IsPassed());
  Decide(1);
  EXPECT_TRUE(Comes(*stream_));
  EXPECT_TRUE(*bucket_.IsPassed());
}

TEST_F(LaunchedBucketTest, AStreamWaitsForNoGateOnceTheVoteIsWon) {
  Launch();
  Decide(1);
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  EXPECT_EQ(cuda_.awaited_words(), 0);
  EXPECT_EQ(cuda_.awaited_events(), 1);
}

TEST_F(LaunchedBucketTest, AfterAVetoItIsDecidedAgainByTheNextLaunch) {
  Launch();
  Decide(2);
  EXPECT_TRUE(bucket_.IsVetoed());
  EXPECT_FALSE(*bucket_.IsPassed());
  bucket_.ExpectAgain(2);
  EXPECT_FALSE(bucket_.NoteAgain());
  EXPECT_TRUE(bucket_.NoteAgain());
  bucket_.Relaunch(Point());
  EXPECT_FALSE(bucket_.IsVetoed());
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  EXPECT_EQ(cuda_.awaited_words(), 0);
}

TEST_F(LaunchedBucketTest, ARefusedTensorIsSaidToBeAwaitedIfAStreamWaitsForItsBucket) {
  Launch();
  const absl::Status refusal = absl::InvalidArgumentError("y is of another shape");
  EXPECT_FALSE(bucket_.Refuse("y", refusal));
  EXPECT_EQ(OrderBefore(*stream_, "y"), refusal);
  ASSERT_EQ(OrderBefore(*stream_, "x"), absl::OkStatus());
  EXPECT_TRUE(bucket_.Refuse("z", refusal));
  Decide(1);
  EXPECT_TRUE(Comes(*stream_));
}

TEST_F(LaunchedBucketTest, AFailureOpensTheGateAndIsTheErrorOfStreamsThatComeLater) {
  Launch();
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  const absl::Status failure = absl::UnavailableError("rank 1 is gone");
  bucket_.End(failure);
  EXPECT_TRUE(Comes(*stream_));
  EXPECT_EQ(bucket_.vote(), nullptr);
  EXPECT_EQ(OrderBefore(*own_), failure);
}

TEST_F(LaunchedBucketTest, ABucketThatHasFailedBeforeItsLaunchGetsNoVote) {
  bucket_.End(absl::UnavailableError("rank 1 is gone"));
  Launch();
  EXPECT_EQ(bucket_.vote(), nullptr);
  EXPECT_FALSE(OrderBefore(*stream_).ok());
  EXPECT_EQ(cuda_.awaited_words(), 0);
}

TEST_F(LaunchedBucketTest, ACallerWhoseStreamSharesQueuesWaitsForTheDecisionInItsStead) {
  Launch();
  cuda_.ShareQueues(stream_->handle());
  std::thread waits([&] { EXPECT_EQ(OrderBefore(*stream_), absl::OkStatus()); });
  while (!attention_.is_wanted()) std::this_thread::yield();
  Decide(1);
  waits.join();
  EXPECT_EQ(cuda_.awaited_words(), 0);
  EXPECT_TRUE(Comes(*stream_));
}

}  // namespace
}  // namespace ronda::testing
