// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/on_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/communicator.h"

namespace ronda::testing {

DeviceMemory DeviceAccess::Allocate(size_t bytes) {
  absl::StatusOr<DeviceMemory> memory = device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, "a test");
  EXPECT_EQ(memory.status(), absl::OkStatus());
  return *std::move(memory);
}

void DeviceAccess::Write(void* memory, absl::string_view content) {
  MakeRoom(content.size());
  content.copy(reinterpret_cast<char*>(pinned_.data()), content.size());
  Copy(memory, pinned_.data(), content.size());
}

std::string DeviceAccess::Read(const void* memory, size_t bytes) {
  MakeRoom(bytes);
  Copy(pinned_.data(), memory, bytes);
  return std::string(reinterpret_cast<const char*>(pinned_.data()), bytes);
}

void DeviceAccess::Finish() {
  const absl::StatusOr<std::unique_ptr<DeviceEvent>> event = device_->NewEvent();
  ASSERT_EQ(event.status(), absl::OkStatus());
  ASSERT_EQ((*event)->Record(stream_), absl::OkStatus());
  ASSERT_EQ((*event)->Wait(), absl::OkStatus());
}

void DeviceAccess::Copy(void* dst, const void* src, size_t bytes) {
  ASSERT_EQ(device_->Call("a test's copy",
                          [&](const ronda_cuda_plugin& cuda) { return cuda.copy(dst, src, bytes, stream_); }),
            absl::OkStatus());
  Finish();
}

void DeviceAccess::MakeRoom(size_t bytes) {
  if (pinned_.size() >= bytes && pinned_.data() != nullptr) return;
  const size_t room = std::max({bytes, 2 * pinned_.size(), size_t{4096}});
  absl::StatusOr<DeviceMemory> memory = device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, room, "a test");
  ASSERT_EQ(memory.status(), absl::OkStatus());
  pinned_ = *std::move(memory);
}

namespace {

constexpr size_t kGuardBytes = 64;
constexpr size_t kAlignment = 16;

// A device copy of a host buffer, which may be nullptr or empty.
class DeviceCopy {
 public:
  DeviceCopy(DeviceAccess& access, const void* host, size_t bytes)
      : access_(access), host_(static_cast<const char*>(host)), bytes_(host == nullptr ? 0 : bytes) {
    if (host == nullptr) return;
    before_ = kGuardBytes + reinterpret_cast<uintptr_t>(host) % kAlignment;
    memory_ = access_.Allocate(before_ + bytes_ + kGuardBytes);
    access_.Write(memory_.data(),
                  std::string(before_, kGuard) + std::string(host_, bytes_) + std::string(kGuardBytes, kGuard));
  }

  void* data() const { return host_ == nullptr ? nullptr : memory_.data() + before_; }

  // Copies the device's content back to the host buffer, but only if it has changed, because inputs are const.
  void CopyBack() const {
    if (host_ == nullptr) return;
    const std::string all = access_.Read(memory_.data(), memory_.size());
    EXPECT_TRUE(all.substr(0, before_) == std::string(before_, kGuard) &&
                all.substr(before_ + bytes_) == std::string(kGuardBytes, kGuard))
        << "memory around a buffer on the device was written";
    const absl::string_view content = absl::string_view(all).substr(before_, bytes_);
    if (content != absl::string_view(host_, bytes_)) content.copy(const_cast<char*>(host_), bytes_);
  }

 private:
  static constexpr char kGuard = '\x5a';

  DeviceAccess& access_;
  const char* const host_;
  const size_t bytes_;
  size_t before_ = 0;
  DeviceMemory memory_;
};

// Device copies of the buffers of one segment of a call.
struct SegmentCopy {
  SegmentCopy(DeviceAccess& device, const ReduceCall& call, const Segment& segment)
      : input(device, segment.input, segment.count * SizeOf(call.dtype)),
        output(device, segment.output == segment.input ? nullptr : segment.output, OutputBytes(call, segment)),
        residual(device, segment.residual, segment.count * sizeof(float)),
        on_device(segment) {
    on_device.input = input.data();
    on_device.output = segment.output == segment.input ? input.data() : output.data();
    on_device.residual = static_cast<float*>(residual.data());
  }

  static size_t OutputBytes(const ReduceCall& call, const Segment& segment) {
    const bool is_whole = call.delivery == ReduceCall::Delivery::kAll;
    return (is_whole ? segment.count : segment.part_count) * SizeOf(call.dtype);
  }

  void CopyBack() const {
    input.CopyBack();
    output.CopyBack();
    residual.CopyBack();
  }

  DeviceCopy input;
  DeviceCopy output;
  DeviceCopy residual;
  Segment on_device;
};

}  // namespace

absl::Status OnDevice::Reduce(const ReduceCall& call) {
  if (call.info.ballot != nullptr) RONDA_RETURN_IF_ERROR(parts_.host->Barrier(call.info));
  if (IsVetoed(call.info)) return absl::OkStatus();
  ReduceCall decided = call;
  decided.info.ballot = nullptr;
  return ReduceBy(decided, [this](const ReduceCall& on_device) { return parts_.communicator->Reduce(on_device); });
}

absl::Status OnDevice::ReduceBy(const ReduceCall& call,
                                absl::FunctionRef<absl::Status(const ReduceCall& on_device)> reduce) {
  std::vector<SegmentCopy> copies;
  std::vector<Segment> segments;
  copies.reserve(call.segments.size());
  for (const Segment& segment : call.segments) {
    copies.emplace_back(access_, call, segment);
    segments.push_back(copies.back().on_device);
  }
  ReduceCall on_device = call;
  on_device.segments = segments;
  RONDA_RETURN_IF_ERROR(reduce(on_device));
  access_.Finish();
  for (const SegmentCopy& copy : copies) copy.CopyBack();
  return absl::OkStatus();
}

absl::Status OnDevice::Broadcast(const BroadcastCall& call) {
  const DeviceCopy copy(access_, call.data, call.bytes);
  BroadcastCall on_device = call;
  on_device.data = copy.data();
  RONDA_RETURN_IF_ERROR(parts_.communicator->Broadcast(on_device));
  access_.Finish();
  copy.CopyBack();
  return absl::OkStatus();
}

absl::Status OnDevice::Allgather(const AllgatherCall& call) {
  const Members members(call.info, rank(), size());
  const size_t sent = members.IncludeSelf() ? call.bytes_per_rank[members.self()] : 0;
  const size_t all = std::accumulate(call.bytes_per_rank.begin(), call.bytes_per_rank.end(), size_t{0});
  const DeviceCopy input(access_, call.input, sent);
  const DeviceCopy output(access_, call.output, all);
  AllgatherCall on_device = call;
  on_device.input = input.data();
  on_device.output = output.data();
  RONDA_RETURN_IF_ERROR(parts_.communicator->Allgather(on_device));
  access_.Finish();
  input.CopyBack();
  output.CopyBack();
  return absl::OkStatus();
}

absl::Status OnDevice::Alltoall(const AlltoallCall& call) {
  const Members members(call.info, rank(), size());
  size_t sent = 0;
  size_t received = 0;
  for (int peer = 0; peer < members.size() && members.IncludeSelf(); ++peer) {
    sent += call.bytes[members.self() * members.size() + peer];
    received += call.bytes[peer * members.size() + members.self()];
  }
  const DeviceCopy input(access_, call.input, sent);
  const DeviceCopy output(access_, call.output, received);
  AlltoallCall on_device = call;
  on_device.input = input.data();
  on_device.output = output.data();
  RONDA_RETURN_IF_ERROR(parts_.communicator->Alltoall(on_device));
  access_.Finish();
  input.CopyBack();
  output.CopyBack();
  return absl::OkStatus();
}

absl::Status OnDevice::Barrier(const CallInfo& info) {
  if (info.ballot != nullptr) return parts_.host->Barrier(info);
  RONDA_RETURN_IF_ERROR(parts_.communicator->Barrier(info));
  access_.Finish();
  return absl::OkStatus();
}

}  // namespace ronda::testing
