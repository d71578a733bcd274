// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using testing::FakeCuda;
using testing::StreamHold;

std::shared_ptr<Device> Open(const FakeCuda& cuda, int ordinal) {
  absl::StatusOr<std::shared_ptr<Device>> device = Device::Open(cuda.table(), ordinal);
  EXPECT_EQ(device.status(), absl::OkStatus());
  return *std::move(device);
}

DeviceMemory Allocate(Device& device, ronda_cuda_memory kind, size_t bytes) {
  absl::StatusOr<DeviceMemory> memory = device.Allocate(kind, bytes, "a test");
  EXPECT_EQ(memory.status(), absl::OkStatus());
  return *std::move(memory);
}

std::unique_ptr<DeviceStream> NewStream(Device& device) { return *DeviceStream::Create(&device); }

int CurrentDevice(const FakeCuda& cuda) {
  int device = -1;
  EXPECT_EQ(cuda.table()->current_device(&device), 0);
  return device;
}

TEST(DeviceTest, MissingDriverIsSaidInItsOwnWords) {
  const FakeCuda cuda({.driver_error = testing::kCudaInsufficientDriver});
  EXPECT_EQ(Device::Open(cuda.table(), 0).status(),
            absl::UnavailableError("no CUDA device: CUDA driver version is insufficient for CUDA runtime version "
                                   "(fake CUDA runtime)"));
}

TEST(DeviceTest, MachineWithoutDevicesHasNoneToOpen) {
  const FakeCuda cuda({.devices = 0});
  EXPECT_EQ(Device::Open(cuda.table(), 0).status(),
            absl::UnavailableError("no CUDA device: no CUDA-capable device is detected (fake CUDA runtime)"));
}

TEST(DeviceTest, DeviceBeyondTheLastIsNotFound) {
  const FakeCuda cuda({.devices = 2});
  for (int ordinal : {-1, 2}) {
    const absl::Status status = Device::Open(cuda.table(), ordinal).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(absl::StrContains(status.message(), "this machine has 2 CUDA devices")) << status;
  }
}

TEST(DeviceTest, NameHasTheOrdinal) {
  const FakeCuda cuda({.devices = 4});
  const auto device = Open(cuda, 3);
  EXPECT_EQ(device->name(), "fake GPU, cuda:3");
  EXPECT_EQ(device->ordinal(), 3);
}

TEST(DeviceTest, CallersCurrentDeviceIsLeftAsItIs) {
  const FakeCuda cuda({.devices = 3});
  ASSERT_EQ(cuda.table()->use_device(1), 0);
  const auto device = Open(cuda, 2);
  const DeviceMemory memory = Allocate(*device, RONDA_CUDA_DEVICE_MEMORY, 16);
  EXPECT_EQ(CurrentDevice(cuda), 1);
  int during = -1;
  EXPECT_EQ(device->Call("looking", [&](const ronda_cuda_plugin& plugin) { return plugin.current_device(&during); }),
            absl::OkStatus());
  EXPECT_EQ(during, 2);
  EXPECT_EQ(CurrentDevice(cuda), 1);
  int owner = -1;
  EXPECT_EQ(cuda.table()->device_of(memory.data(), &owner), 0);
  EXPECT_EQ(owner, 2);
  ASSERT_EQ(cuda.table()->use_device(0), 0);
}

TEST(DeviceTest, DeviceIsMadeCurrentOnceForSeveralCalls) {
  const FakeCuda cuda({.devices = 3});
  const auto device = Open(cuda, 2);
  const auto other = Open(cuda, 1);
  const auto look = [&](Device& at) {
    int during = -1;
    EXPECT_EQ(at.Call("looking", [&](const ronda_cuda_plugin& plugin) { return plugin.current_device(&during); }),
              absl::OkStatus());
    return during;
  };
  const size_t before = FakeCuda::DeviceChangesOfThisThread();
  {
    const Device::Current current(device.get());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(look(*device), 2);
    EXPECT_EQ(FakeCuda::DeviceChangesOfThisThread(), before + 1);
    EXPECT_EQ(look(*other), 1);
    EXPECT_EQ(look(*device), 2) << "as it was before the other's call";
  }
  EXPECT_EQ(CurrentDevice(cuda), 0);
  EXPECT_EQ(FakeCuda::DeviceChangesOfThisThread(), before + 4);
  EXPECT_EQ(look(*device), 2);
  EXPECT_EQ(FakeCuda::DeviceChangesOfThisThread(), before + 6) << "the trainer's choice counts again";
}

TEST(DeviceTest, ThreadsOfRondasOwnKeepTheDevice) {
  const FakeCuda cuda({.devices = 3});
  const auto device = Open(cuda, 2);
  std::thread own([&] {
    for (int i = 0; i < 3; ++i) device->Adopt();
    const DeviceMemory memory = Allocate(*device, RONDA_CUDA_DEVICE_MEMORY, 16);
    EXPECT_EQ(FakeCuda::DeviceChangesOfThisThread(), 1u);
    EXPECT_EQ(CurrentDevice(cuda), 2);
  });
  own.join();
}

TEST(DeviceTest, ErrorsNameDeviceAndWhatWasDone) {
  FakeCuda cuda({});
  const auto device = Open(cuda, 5);
  EXPECT_EQ(device->Call("the pack kernel", [](const ronda_cuda_plugin&) { return testing::kCudaIllegalAddress; }),
            absl::InternalError("cuda:5: the pack kernel: an illegal memory access was encountered"));
}

TEST(DeviceTest, ExhaustedMemorySaysHowMuchWasAskedForAndWhatFor) {
  const FakeCuda cuda({.memory_bytes = 1 << 20});
  const auto device = Open(cuda, 0);
  EXPECT_EQ(device->Allocate(RONDA_CUDA_DEVICE_MEMORY, 3 << 19, "the fusion buffer").status(),
            absl::ResourceExhaustedError(
                "cuda:0: allocating: out of memory: 1.5 MiB of device memory for the fusion buffer"));
}

TEST(DeviceTest, MemoryIsGivenBackOnce) {
  const FakeCuda cuda({.memory_bytes = 1 << 20});
  const auto device = Open(cuda, 0);
  for (int i = 0; i < 3; ++i) {
    DeviceMemory first = Allocate(*device, RONDA_CUDA_DEVICE_MEMORY, 1 << 20);
    DeviceMemory second = std::move(first);
    first = DeviceMemory();
    EXPECT_EQ(second.size(), size_t{1} << 20);
  }
  EXPECT_EQ(cuda.Leaks(), "");
}

TEST(DeviceTest, StreamsCopyBetweenHostAndDevice) {
  const FakeCuda cuda({.delay_seed = 1, .host_access = testing::FakeMemory::HostAccess::kFatal});
  const auto device = Open(cuda, 0);
  const auto stream = NewStream(*device);
  const DeviceMemory pinned = Allocate(*device, RONDA_CUDA_PINNED_HOST_MEMORY, 5);
  const DeviceMemory memory = Allocate(*device, RONDA_CUDA_DEVICE_MEMORY, 5);
  testing::WriteDevice(pinned.data(), "ronda");
  const auto event = *device->NewEvent();
  ASSERT_EQ(device->Call("copying",
                         [&](const ronda_cuda_plugin& plugin) {
                           return plugin.copy(memory.data(), pinned.data(), 5, stream->handle());
                         }),
            absl::OkStatus());
  ASSERT_EQ(event->Record(stream->handle()), absl::OkStatus());
  ASSERT_EQ(event->Wait(), absl::OkStatus());
  EXPECT_EQ(testing::ReadDevice(memory.data(), 5), "ronda");
}

TEST(DeviceTest, EventIsPassedWhenItsStreamHasComeThere) {
  const FakeCuda cuda({});
  const auto device = Open(cuda, 0);
  const auto stream = NewStream(*device);
  StreamHold hold(stream->handle());
  const auto event = *device->NewEvent();
  ASSERT_EQ(event->Record(stream->handle()), absl::OkStatus());
  EXPECT_EQ(*event->done(), false);
  hold.Release();
  EXPECT_EQ(event->Wait(), absl::OkStatus());
  EXPECT_EQ(*event->done(), true);
}

TEST(DeviceTest, StreamWaitsForAnEventOfAnother) {
  const FakeCuda cuda({});
  const auto device = Open(cuda, 0);
  const auto first = NewStream(*device);
  const auto second = NewStream(*device);
  StreamHold hold(first->handle());
  const auto event = *device->NewEvent();
  ASSERT_EQ(event->Record(first->handle()), absl::OkStatus());
  ASSERT_EQ(event->OrderBefore(second->handle()), absl::OkStatus());
  const auto behind = *device->NewEvent();
  ASSERT_EQ(behind->Record(second->handle()), absl::OkStatus());
  EXPECT_EQ(*behind->done(), false);
  hold.Release();
  EXPECT_EQ(behind->Wait(), absl::OkStatus());
}

TEST(DeviceTest, EventsThatWereGivenBackAreUsedAgain) {
  FakeCuda cuda({});
  {
    const auto device = Open(cuda, 0);
    const auto stream = NewStream(*device);
    for (int i = 0; i < 10; ++i) {
      const auto one = *device->NewEvent();
      const auto other = *device->NewEvent();
      ASSERT_EQ(one->Record(stream->handle()), absl::OkStatus());
      ASSERT_EQ(other->Record(stream->handle()), absl::OkStatus());
      ASSERT_EQ(other->Wait(), absl::OkStatus());
    }
    EXPECT_EQ(cuda.created_events(), 2u);
  }
  EXPECT_EQ(cuda.Leaks(), "");
}

TEST(DeviceTest, EventHasTheErrorOfTheDevice) {
  FakeCuda cuda({});
  const auto device = Open(cuda, 1);
  const auto stream = NewStream(*device);
  const auto event = *device->NewEvent();
  ASSERT_EQ(event->Record(stream->handle()), absl::OkStatus());
  cuda.FailDevice(1, testing::kCudaIllegalAddress);
  EXPECT_EQ(event->done().status(),
            absl::InternalError("cuda:1: earlier work: an illegal memory access was encountered"));
  EXPECT_EQ(event->Wait(), absl::InternalError("cuda:1: earlier work: an illegal memory access was encountered"));
  cuda.FailDevice(1, testing::kCudaSuccess);
}

TEST(DeviceTest, ThreadsShareADevice) {
  FakeCuda cuda({.devices = 2, .delay_seed = 7});
  const auto device = Open(cuda, 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto stream = NewStream(*device);
      for (int round = 0; round < 20; ++round) {
        const auto event = *device->NewEvent();
        ASSERT_EQ(event->Record(stream->handle()), absl::OkStatus());
        ASSERT_EQ(event->Wait(), absl::OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cuda.created_events(), 4u);
}

}  // namespace

// Tests how the file of the CUDA plugin is chosen, and how the plugin's devices are described.

namespace {

TEST(CudaLibraryTest, MissingPluginIsSaidWithThePlacesLookedAtAndWhatToDo) {
  const absl::Status status = LoadCudaPlugin("").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  const std::string beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::string& part : {beside + "/libronda_cuda.so", beside + "/../lib/libronda_cuda.so",
                                  std::string("RONDA_CUDA_PLUGIN"), std::string("NVIDIA's driver")}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status << " lacks " << part;
  }
}

TEST(CudaLibraryTest, LibraryThatIsNoPluginIsRefused) {
  EXPECT_EQ(LoadCudaPlugin("libm.so.6").status(),
            absl::FailedPreconditionError("libm.so.6 is no CUDA plugin of Ronda's"));
}

TEST(CudaLibraryTest, DevicesOfALoadedPluginAreDescribed) {
  const std::string path = std::filesystem::absolute("tests/testing/fake_cuda/libfake_cuda.so");
  ASSERT_EQ(setenv("FAKE_CUDA_DEVICES", "2", 1), 0);
  const absl::StatusOr<const ronda_cuda_plugin*> plugin = LoadCudaPlugin(path);
  ASSERT_EQ(plugin.status(), absl::OkStatus());
  const absl::StatusOr<std::string> description = DescribeDevices(**plugin);
  ASSERT_EQ(description.status(), absl::OkStatus());
  EXPECT_EQ(*description, "2 devices: fake GPU, fake GPU (fake CUDA runtime)");
}

}  // namespace

}  // namespace ronda
