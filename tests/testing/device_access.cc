#include "tests/testing/device_access.h"

#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace ronda::testing
