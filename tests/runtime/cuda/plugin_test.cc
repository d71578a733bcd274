// SPDX-License-Identifier: Apache-2.0

// Tests the plugin on a GPU or on stand-ins for CUDA's libraries, and its errors on a machine without a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "runtime/base/unique_fd.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/shared_memory.h"
#include "runtime/shm/shm_file.h"
#include "tests/runtime/cuda/plugin_under_test.h"

namespace ronda {
namespace {

class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<const ronda_cuda_plugin*> plugin = LoadCudaPlugin(testing::PluginUnderTest());
    ASSERT_EQ(plugin.status(), absl::OkStatus());
    plugin_ = *plugin;
  }

  const ronda_cuda_plugin* plugin_ = nullptr;
};

TEST_F(PluginTest, NamesItsRuntimeWithoutADriverToo) {
  EXPECT_TRUE(absl::StartsWith(plugin_->library(), "CUDA runtime ")) << plugin_->library();
}

TEST_F(PluginTest, WithoutADeviceSaysWhy) {
  if (CountDevices(*plugin_).ok()) GTEST_SKIP() << "this machine has a device";
  const absl::Status status = Device::Open(plugin_, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StartsWith(status.message(), "no CUDA device: ")) << status;
  int device = 0;
  EXPECT_NE(plugin_->device_of(&device, &device), 0);
  EXPECT_EQ(device, -1);
  EXPECT_NE(plugin_->prepare_device(), 0);
}

class DevicePluginTest : public PluginTest {
 protected:
  void SetUp() override {
    PluginTest::SetUp();
    if (HasFatalFailure()) return;
    const absl::StatusOr<std::shared_ptr<Device>> device = Device::Open(plugin_, 0);
    if (!device.ok()) GTEST_SKIP() << device.status();
    device_ = *device;
    stream_ = *DeviceStream::Create(device_.get());
  }

  int DeviceOf(const void* pointer) const {
    int device = 99;
    EXPECT_EQ(plugin_->device_of(pointer, &device), 0);
    return device;
  }

  template <typename Enqueue>
  void RunOnStream(const Enqueue& enqueue) {
    ASSERT_EQ(
        device_->Call("a test's work", [&](const ronda_cuda_plugin& cuda) { return enqueue(cuda, stream_->handle()); }),
        absl::OkStatus());
    const auto event = *device_->NewEvent();
    ASSERT_EQ(event->Record(stream_->handle()), absl::OkStatus());
    ASSERT_EQ(event->Wait(), absl::OkStatus());
    EXPECT_EQ(*event->done(), true);
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
};

TEST_F(DevicePluginTest, KnowsWhoseMemoryAPointerIsTo) {
  const DeviceMemory memory = *device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, 1024, "a test");
  const DeviceMemory pinned = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, 1024, "a test");
  EXPECT_EQ(DeviceOf(memory.data() + 1023), 0);
  EXPECT_EQ(DeviceOf(pinned.data()), -1);
  EXPECT_EQ(DeviceOf(&memory), -1);
}

TEST_F(DevicePluginTest, DescribesTheDevice) {
  ronda_cuda_device description = {};
  ASSERT_EQ(plugin_->describe(0, &description), 0);
  EXPECT_NE(description.name[0], '\0');
  EXPECT_NE(std::strchr(description.pci_bus, ':'), nullptr) << description.pci_bus;
  EXPECT_EQ(std::strlen(description.uuid), std::strlen("5c8a9b6e-1f22-41ab-8c33-0123456789ab")) << description.uuid;
  EXPECT_GE(description.capability_major * 10 + description.capability_minor, 75);
  EXPECT_GT(description.multiprocessors, 0);
  EXPECT_GE(description.memory_bytes, size_t{1} << 30);
}

TEST_F(DevicePluginTest, LoadsItsKernelsAsOftenAsItIsAskedTo) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(device_->Call("loading", [](const ronda_cuda_plugin& cuda) { return cuda.prepare_device(); }),
              absl::OkStatus());
  }
}

TEST_F(DevicePluginTest, CopiesThereAndBack) {
  constexpr size_t kBytes = 1 << 20;
  const DeviceMemory memory = *device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, kBytes, "a test");
  const DeviceMemory first = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, kBytes, "a test");
  const DeviceMemory second = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, kBytes, "a test");
  for (size_t i = 0; i < kBytes; ++i) first.data()[i] = static_cast<std::byte>(i * 7);
  RunOnStream([&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    const int error = cuda.copy(memory.data(), first.data(), kBytes, stream);
    return error != 0 ? error : cuda.copy(second.data(), memory.data(), kBytes, stream);
  });
  EXPECT_EQ(std::memcmp(first.data(), second.data(), kBytes), 0);
  RunOnStream([&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    const int error = cuda.fill_zero(memory.data(), kBytes / 2, stream);
    return error != 0 ? error : cuda.copy(second.data(), memory.data(), kBytes, stream);
  });
  EXPECT_EQ(second.data()[0], std::byte{0});
  EXPECT_EQ(std::memcmp(first.data() + kBytes / 2, second.data() + kBytes / 2, kBytes / 2), 0);
}

TEST_F(DevicePluginTest, SharedMemoryIsOneWhateverItsAddress) {
  const absl::StatusOr<size_t> unit = SharingUnit(*device_);
  if (!unit.ok()) GTEST_SKIP() << unit.status();
  std::vector<UniqueFd> files;
  for (int i = 0; i < 2; ++i) {
    absl::StatusOr<UniqueFd> file = AllocateShared(*device_, *unit, "a test");
    ASSERT_EQ(file.status(), absl::OkStatus());
    files.push_back(*std::move(file));
  }
  const auto both = *SharedMapping::Map(device_.get(), files, *unit);
  const auto second = *SharedMapping::Map(device_.get(), absl::MakeConstSpan(files).subspan(1), *unit);
  files.clear();
  const DeviceMemory first = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, 8, "a test");
  const DeviceMemory last = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, 8, "a test");
  std::memcpy(first.data(), "through", 8);
  RunOnStream([&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    const int error = cuda.copy(both->data() + *unit, first.data(), 8, stream);
    return error != 0 ? error : cuda.copy(last.data(), second->data(), 8, stream);
  });
  EXPECT_EQ(std::memcmp(last.data(), "through", 8), 0);
}

TEST_F(DevicePluginTest, AStreamMeetsTheHostAtAWord) {
  if (!SharingUnit(*device_).ok()) GTEST_SKIP() << SharingUnit(*device_).status();
  constexpr size_t kBytes = 65536;
  const auto page = *ShmMapping::Anonymous(kBytes);
  const auto registered = *RegisteredMemory::Register(device_.get(), page->base(), kBytes);
  auto* const words = static_cast<uint32_t*>(page->base());
  auto* const on_device = reinterpret_cast<uint32_t*>(registered->on_device());
  const ronda_cuda_word_op ops[] = {{RONDA_CUDA_WRITE_WORD, on_device, 1},
                                    {RONDA_CUDA_AWAIT_WORD_AT_LEAST, on_device + 1, 7},
                                    {RONDA_CUDA_AWAIT_WORD_EQUAL, on_device + 2, 0},
                                    {RONDA_CUDA_WRITE_WORD, on_device, 2}};
  ASSERT_EQ(device_->Call("a test's work",
                          [&](const ronda_cuda_plugin& cuda) { return cuda.run_word_ops(ops, 4, stream_->handle()); }),
            absl::OkStatus());
  while (std::atomic_ref<uint32_t>(words[0]).load() != 1) std::this_thread::yield();
  std::atomic_ref<uint32_t>(words[1]).store(9);
  RunOnStream([](const ronda_cuda_plugin&, StreamHandle) { return 0; });
  EXPECT_EQ(std::atomic_ref<uint32_t>(words[0]).load(), 2u);
}

// Kernels must be able to access pinned host memory at its host addresses, because the staged communicator passes these
// to kernels.
TEST_F(DevicePluginTest, KernelsReachPinnedMemory) {
  const DeviceMemory values = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, 4 * sizeof(float), "a test");
  const DeviceMemory wire = *device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, 4 * sizeof(float), "a test");
  auto* const floats = reinterpret_cast<float*>(values.data());
  for (int i = 0; i < 4; ++i) floats[i] = static_cast<float>(i);
  const kernels::cuda::PackSegment packed = {.input = floats, .count = 4};
  const kernels::cuda::UnpackSegment unpacked = {.output = floats, .count = 4};
  RunOnStream([&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    const kernels::cuda::PackCall pack = {
        .segments = &packed, .segment_count = 1, .scale = {.multiplier = 3}, .buffer = wire.data()};
    const int error = cuda.pack(&pack, stream);
    const kernels::cuda::UnpackCall unpack = {.segments = &unpacked, .segment_count = 1, .buffer = wire.data()};
    return error != 0 ? error : cuda.unpack(&unpack, stream);
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(floats[i], static_cast<float>(3 * i));
}

TEST_F(DevicePluginTest, StreamCapturesOnlyOnRequest) {
  int capturing = -1;
  EXPECT_EQ(plugin_->is_capturing(stream_->handle(), &capturing), 0);
  EXPECT_EQ(capturing, 0);
}

// Returns a function of the driver, without using the driver's header.
template <typename Function>
Function DriverFunction(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function>(driver == nullptr ? nullptr : dlsym(driver, name));
}

TEST_F(DevicePluginTest, TheDefaultStreamIsCapturedWithOneThatWaitsForIt) {
  const auto create = DriverFunction<int (*)(void**, unsigned)>("cuStreamCreate");
  const auto destroy = DriverFunction<int (*)(void*)>("cuStreamDestroy_v2");
  const auto begin = DriverFunction<int (*)(void*, int)>("cuStreamBeginCapture_v2");
  const auto end = DriverFunction<int (*)(void*, void**)>("cuStreamEndCapture");
  const auto destroy_graph = DriverFunction<int (*)(void*)>("cuGraphDestroy");
  ASSERT_TRUE(create != nullptr && destroy != nullptr && begin != nullptr && end != nullptr &&
              destroy_graph != nullptr);
  RunOnStream([&](const ronda_cuda_plugin& cuda, StreamHandle) {
    constexpr int kRelaxed = 2;
    void* blocking = nullptr;
    void* graph = nullptr;
    int capturing = -1;
    EXPECT_EQ(create(&blocking, 0), 0);
    EXPECT_EQ(begin(blocking, kRelaxed), 0);
    EXPECT_EQ(cuda.is_capturing(nullptr, &capturing), 0);
    EXPECT_EQ(capturing, 1);
    EXPECT_EQ(end(blocking, &graph), 0) << "the capture has not been broken";
    EXPECT_EQ(cuda.is_capturing(nullptr, &capturing), 0);
    EXPECT_EQ(capturing, 0);
    EXPECT_EQ(destroy_graph(graph), 0);
    return destroy(blocking);
  });
}

TEST_F(DevicePluginTest, EveryStreamHasANumberOfItsOwn) {
  const auto number_of = [this](StreamHandle stream) {
    uint64_t id = 0;
    EXPECT_EQ(plugin_->stream_id(stream, &id), 0);
    return id;
  };
  const uint64_t first = number_of(stream_->handle());
  EXPECT_EQ(number_of(stream_->handle()), first);
  EXPECT_NE(number_of(nullptr), first);
  const auto other = *DeviceStream::Create(device_.get());
  EXPECT_NE(number_of(other->handle()), first);
}

TEST_F(DevicePluginTest, EventsTellTheTimeBetweenThem) {
  void* begin = nullptr;
  void* end = nullptr;
  ASSERT_EQ(plugin_->create_event(1, &begin), 0);
  ASSERT_EQ(plugin_->create_event(1, &end), 0);
  RunOnStream([&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    const int error = cuda.record_event(begin, stream);
    return error != 0 ? error : cuda.record_event(end, stream);
  });
  float ms = -1;
  EXPECT_EQ(plugin_->elapsed_ms(begin, end, &ms), 0);
  EXPECT_GE(ms, 0);
  EXPECT_EQ(plugin_->destroy_event(begin), 0);
  EXPECT_EQ(plugin_->destroy_event(end), 0);
}

TEST_F(DevicePluginTest, ExhaustedMemoryIsAnErrorThatLeavesNothingBehind) {
  const absl::Status status =
      device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, size_t{1} << 50, "a test of too much").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(status.message(), "1024 TiB of device memory for a test of too much")) << status;
  const DeviceMemory memory = *device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, 16, "a test");
  // If the failed allocation had left its error in the runtime, the launch of this kernel would report the error.
  RunOnStream([&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    const kernels::cuda::PackSegment segment = {.input = memory.data(), .count = 1};
    const kernels::cuda::PackCall call = {.segments = &segment, .segment_count = 1, .buffer = memory.data()};
    return cuda.pack(&call, stream);
  });
}

}  // namespace
}  // namespace ronda
