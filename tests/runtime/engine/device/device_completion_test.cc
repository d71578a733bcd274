// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_completion.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

class DeviceCompletionTest : public ::testing::Test {
 protected:
  ~DeviceCompletionTest() override { callbacks_->Stop(); }

  void Launch() {
    auto event = *device_->NewEvent();
    EXPECT_EQ(event->Record(own_->handle()), absl::OkStatus());
    bucket_.Launch(std::move(event));
  }
  absl::Status OrderBefore(const DeviceStream& stream) {
    WaitingStream waiting(stream.handle());
    return bucket_.OrderBefore(waiting);
  }
  // Polls until the bucket is done. This test has no DeviceWatch, which polls the device in a job.
  void AwaitEnd() {
    while (!bucket_.done()) std::this_thread::yield();
    EXPECT_EQ(bucket_.status(), absl::OkStatus());
  }
  // Returns whether `stream` has done its work so far.
  bool HasCome(const DeviceStream& stream) {
    const auto event = *device_->NewEvent();
    EXPECT_EQ(event->Record(stream.handle()), absl::OkStatus());
    return *event->done();
  }

  FakeCuda cuda_{{.devices = 1}};
  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  const std::unique_ptr<DeviceStream> own_ = *DeviceStream::Create(device_.get());
  const std::unique_ptr<DeviceStream> stream_ = *DeviceStream::Create(device_.get());
  const std::shared_ptr<CallbackThread> callbacks_ = CallbackThread::Create({});
  DeviceCompletion bucket_{{.label = "x", .device = device_, .callbacks = callbacks_}};
};

TEST_F(DeviceCompletionTest, AStreamWaitsForTheEndOfTheBucketOnce) {
  StreamHold hold(own_->handle());
  Launch();
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  EXPECT_EQ(cuda_.awaited_events(), 1u);
  EXPECT_FALSE(HasCome(*stream_));
  EXPECT_FALSE(bucket_.done());
  hold.Release();
  AwaitEnd();
}

TEST_F(DeviceCompletionTest, AStreamNeedNotWaitForWhatIsDone) {
  Launch();
  AwaitEnd();
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  EXPECT_EQ(cuda_.awaited_events(), 0u);
}

TEST_F(DeviceCompletionTest, AFailureIsTheErrorOfStreamsThatComeLater) {
  StreamHold hold(own_->handle());
  Launch();
  ASSERT_EQ(OrderBefore(*stream_), absl::OkStatus());
  const absl::Status failure = absl::UnavailableError("rank 1 is gone");
  bucket_.Settle(failure);
  EXPECT_EQ(OrderBefore(*stream_), failure);
  EXPECT_EQ(OrderBefore(*own_), failure);
  EXPECT_EQ(cuda_.awaited_events(), 1u);
}

TEST_F(DeviceCompletionTest, ACaptureIsFoundEvenIfTheBucketIsDone) {
  Launch();
  AwaitEnd();
  cuda_.SetCapturing(stream_->handle(), 1);
  EXPECT_EQ(OrderBefore(*stream_).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ronda::testing
