// SPDX-License-Identifier: Apache-2.0

// Tests how streams and the host wait for each other when device tensors go through host memory. tests/conformance
// checks the results.
#include "runtime/collectives/staged/staged_communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "runtime/collectives/self/self_communicator.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using testing::FakeCuda;
using testing::FakeMemory;
using testing::StreamHold;

constexpr size_t kSlotBytes = 16 << 10;

class StagedCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = *Device::Open(cuda_.table(), 1);
    stream_ = *DeviceStream::Create(device_.get());
    staged_ = *StagedCommunicator::Create({.device = device_,
                                           .stream = stream_->handle(),
                                           .host = host_.communicator.get(),
                                           .slot_bytes = kSlotBytes,
                                           .job_failure = [this] {
                                             ++asked_for_failure_;
                                             return has_failed_.load() ? absl::UnavailableError("rank 1 has died")
                                                                       : absl::OkStatus();
                                           }});
  }

  DeviceMemory Tensor(const std::vector<float>& values) {
    DeviceMemory memory = *device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, values.size() * sizeof(float), "a tensor");
    testing::WriteDevice(memory.data(), {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    return memory;
  }

  std::vector<float> ValuesOf(const DeviceMemory& memory) {
    AwaitStream();
    const std::string content = testing::ReadDevice(memory.data(), memory.size());
    std::vector<float> values(content.size() / sizeof(float));
    std::memcpy(values.data(), content.data(), content.size());
    return values;
  }

  void AwaitStream() {
    const auto event = *device_->NewEvent();
    ASSERT_EQ(event->Record(stream_->handle()), absl::OkStatus());
    ASSERT_EQ(event->Wait(), absl::OkStatus());
  }

  // Makes an in-place allreduce, which doubles the values.
  absl::Status Double(const DeviceMemory& tensor, absl::Duration deadline = absl::Minutes(1)) {
    const Segment segment = {.input = tensor.data(), .output = tensor.data(), .count = tensor.size() / sizeof(float)};
    return staged_->Reduce({.info = {.label = "conv1/weight", .limits = {.deadline = deadline}},
                            .segments = {&segment, 1},
                            .prescale = {.multiplier = 2}});
  }

  FakeCuda cuda_{{.devices = 2, .host_access = FakeMemory::HostAccess::kFatal}};
  std::atomic<bool> has_failed_{false};
  std::atomic<int> asked_for_failure_{0};
  Transport host_ = CreateSelfTransport("localhost");
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<StagedCommunicator> staged_;
};

TEST_F(StagedCommunicatorTest, HasTheRanksOfTheHostsCommunicator) {
  EXPECT_EQ(staged_->size(), 1);
  EXPECT_EQ(staged_->rank(), 0);
}

// Before the call, the stream already has work that writes the tensor.
TEST_F(StagedCommunicatorTest, CallWaitsForTheStreamsEarlierWork) {
  const DeviceMemory tensor = Tensor({1, 2});
  const DeviceMemory later = Tensor({3, 4});
  StreamHold hold(stream_->handle());
  ASSERT_EQ(device_->Call("copying",
                          [&](const ronda_cuda_plugin& cuda) {
                            return cuda.copy(tensor.data(), later.data(), 2 * sizeof(float), stream_->handle());
                          }),
            absl::OkStatus());
  std::thread caller([&] { EXPECT_EQ(Double(tensor), absl::OkStatus()); });
  while (asked_for_failure_.load() == 0) std::this_thread::yield();  // until it waits
  hold.Release();
  caller.join();
  EXPECT_EQ(ValuesOf(tensor), (std::vector<float>{6, 8}));
}

TEST_F(StagedCommunicatorTest, FailureOfTheJobEndsAWaitForTheDevice) {
  const DeviceMemory tensor = Tensor({1, 2});
  StreamHold hold(stream_->handle());
  has_failed_ = true;
  EXPECT_EQ(Double(tensor), absl::UnavailableError("rank 1 has died"));
  hold.Release();
  AwaitStream();  // it has still to read the tensor
}

TEST_F(StagedCommunicatorTest, StreamThatDoesNotGoOnIsNamedAfterTheDeadline) {
  const DeviceMemory tensor = Tensor({1, 2});
  StreamHold hold(stream_->handle());
  const absl::Status status = Double(tensor, absl::Milliseconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(absl::StartsWith(status.message(), "fake GPU, cuda:1 has not come to allreduce 'conv1/weight' after "))
      << status;
  hold.Release();
  AwaitStream();  // it has still to read the tensor
}

TEST_F(StagedCommunicatorTest, ErrorOfTheDeviceIsTheCalls) {
  const DeviceMemory tensor = Tensor({1, 2});
  cuda_.FailDevice(1, testing::kCudaIllegalAddress);
  const absl::Status status = Double(tensor);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(status.message(), "an illegal memory access was encountered")) << status;
  cuda_.FailDevice(1, testing::kCudaSuccess);
}

TEST_F(StagedCommunicatorTest, TensorsLargerThanASlotGoThroughInRounds) {
  std::vector<float> values(20 * kSlotBytes / sizeof(float) + 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const DeviceMemory tensor = Tensor(values);
  ASSERT_EQ(Double(tensor), absl::OkStatus());
  for (float& value : values) value *= 2;
  EXPECT_TRUE(ValuesOf(tensor) == values);
}

TEST_F(StagedCommunicatorTest, RepeatedReduceAllocatesNoMemory) {
  const DeviceMemory tensor = Tensor(std::vector<float>(3 * kSlotBytes));
  const size_t allocations = cuda_.allocations();
  const size_t events = cuda_.created_events();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(Double(tensor), absl::OkStatus());
  EXPECT_EQ(cuda_.allocations(), allocations);
  EXPECT_EQ(cuda_.created_events(), events);
}

TEST_F(StagedCommunicatorTest, VoteIsDecidedWhenTheCallReturns) {
  const DeviceMemory tensor = Tensor({1, 2});
  const auto when_late = [] {};
  for (Ballot::Vote vote : {Ballot::Vote::kVeto, Ballot::Vote::kApprove}) {
    Ballot ballot = {.own = vote, .when_late = when_late};
    const Segment segment = {.input = tensor.data(), .output = tensor.data(), .count = 2};
    ASSERT_EQ(staged_->Reduce({.info = {.label = "vote", .ballot = &ballot}, .segments = {&segment, 1}}),
              absl::OkStatus());
    EXPECT_EQ(ballot.result, vote == Ballot::Vote::kApprove ? Ballot::Result::kCarriedOut : Ballot::Result::kVetoed);
  }
  EXPECT_EQ(ValuesOf(tensor), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace ronda
