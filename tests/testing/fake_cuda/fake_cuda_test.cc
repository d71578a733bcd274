// SPDX-License-Identifier: Apache-2.0

// Tests that the fake CUDA is as strict as other tests need it to be.
#include "tests/testing/fake_cuda/fake_cuda.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ronda::testing {
namespace {

void* Allocate(const FakeCuda& cuda, ronda_cuda_memory kind, size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(cuda.table()->allocate(kind, bytes, &memory), kCudaSuccess);
  return memory;
}

// Waits until the default stream of the current device is idle.
void Finish(const FakeCuda& cuda) {
  void* event = nullptr;
  ASSERT_EQ(cuda.table()->create_event(0, &event), kCudaSuccess);
  ASSERT_EQ(cuda.table()->record_event(event, nullptr), kCudaSuccess);
  ASSERT_EQ(cuda.table()->synchronize_event(event), kCudaSuccess);
  ASSERT_EQ(cuda.table()->destroy_event(event), kCudaSuccess);
}

TEST(FakeCudaTest, MemoryIsFreedOnce) {
  const FakeCuda cuda({});
  void* const memory = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  EXPECT_EQ(cuda.table()->release(RONDA_CUDA_PINNED_HOST_MEMORY, memory), kCudaInvalidValue);
  EXPECT_EQ(cuda.table()->release(RONDA_CUDA_DEVICE_MEMORY, memory), kCudaSuccess);
  EXPECT_EQ(cuda.table()->release(RONDA_CUDA_DEVICE_MEMORY, memory), kCudaInvalidValue);
}

TEST(FakeCudaTest, StreamsFindMemoryThatWasReleasedAfterTheyWereGivenIt) {
  const FakeCuda cuda({});
  void* const first = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  void* const second = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  WriteDevice(first, "released");
  StreamHold hold(nullptr);
  ASSERT_EQ(cuda.table()->copy(second, first, 8, nullptr), kCudaSuccess);
  ASSERT_EQ(cuda.table()->release(RONDA_CUDA_DEVICE_MEMORY, first), kCudaSuccess);
  EXPECT_EQ(cuda.table()->copy(second, first, 8, nullptr), kCudaInvalidValue);
  hold.Release();
  Finish(cuda);
  EXPECT_EQ(ReadDevice(second, 8), "released");
}

TEST(FakeCudaTest, DevicesHaveAContextOnceTheyAreUsed) {
  const FakeCuda cuda({});
  ASSERT_EQ(cuda.table()->restore_device(2), kCudaSuccess);
  EXPECT_EQ(fake_cuda_has_context(2), 0);
  Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  EXPECT_EQ(fake_cuda_has_context(2), 1);
  ASSERT_EQ(cuda.table()->use_device(1), kCudaSuccess);
  EXPECT_EQ(fake_cuda_has_context(1), 1);
  EXPECT_EQ(fake_cuda_has_context(0), 0);
  ASSERT_EQ(cuda.table()->use_device(0), kCudaSuccess);
}

TEST(FakeCudaTest, StreamsAreIdleAtTheirEnd) {
  const FakeCuda cuda({});
  int is_idle = -1;
  StreamHold hold(nullptr);
  ASSERT_EQ(fake_cuda_is_idle(nullptr, &is_idle), kCudaSuccess);
  EXPECT_EQ(is_idle, 0);
  hold.Release();
  fake_cuda_wait_for_device();
  ASSERT_EQ(fake_cuda_is_idle(nullptr, &is_idle), kCudaSuccess);
  EXPECT_EQ(is_idle, 1);
  EXPECT_EQ(fake_cuda_is_idle(&is_idle, &is_idle), kCudaInvalidHandle);
}

TEST(FakeCudaTest, MemoryBelongsToADeviceUpToItsEnd) {
  const FakeCuda cuda({});
  ASSERT_EQ(cuda.table()->use_device(3), kCudaSuccess);
  auto* const memory = static_cast<char*>(Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8));
  const void* const pinned = Allocate(cuda, RONDA_CUDA_PINNED_HOST_MEMORY, 8);
  const auto device_of = [&](const void* pointer) {
    int device = 99;
    EXPECT_EQ(cuda.table()->device_of(pointer, &device), kCudaSuccess);
    return device;
  };
  EXPECT_EQ(device_of(memory), 3);
  EXPECT_EQ(device_of(memory + 7), 3);
  EXPECT_EQ(device_of(memory + 8), -1);
  EXPECT_EQ(device_of(pinned), -1);
  EXPECT_EQ(device_of(&cuda), -1);
  ASSERT_EQ(cuda.table()->use_device(0), kCudaSuccess);
}

TEST(FakeCudaTest, OnlyMemoryThatTheDeviceCanAddressIsCopied) {
  const FakeCuda cuda({});
  auto* const memory = static_cast<char*>(Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8));
  auto* const pinned = static_cast<char*>(Allocate(cuda, RONDA_CUDA_PINNED_HOST_MEMORY, 8));
  char pageable[8] = {};
  EXPECT_EQ(cuda.table()->copy(memory, pinned, 8, nullptr), kCudaSuccess);
  EXPECT_EQ(cuda.table()->copy(memory, pageable, 8, nullptr), kCudaInvalidValue);
  EXPECT_EQ(cuda.table()->copy(memory, pinned, 9, nullptr), kCudaInvalidValue);
  EXPECT_EQ(cuda.table()->copy(memory + 4, pinned, 5, nullptr), kCudaInvalidValue);
  ASSERT_EQ(cuda.table()->use_device(1), kCudaSuccess);
  EXPECT_EQ(cuda.table()->copy(memory, pinned, 8, nullptr), kCudaInvalidValue);
  ASSERT_EQ(cuda.table()->use_device(0), kCudaSuccess);
}

TEST(FakeCudaTest, HandlesThatWereDestroyedAreNoLonger) {
  const FakeCuda cuda({});
  void* stream = nullptr;
  void* event = nullptr;
  ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
  ASSERT_EQ(cuda.table()->create_event(0, &event), kCudaSuccess);
  EXPECT_EQ(cuda.Leaks(), "1 streams, 1 events");
  EXPECT_EQ(cuda.table()->destroy_stream(stream), kCudaSuccess);
  EXPECT_EQ(cuda.table()->record_event(event, stream), kCudaInvalidHandle);
  EXPECT_EQ(cuda.table()->destroy_stream(stream), kCudaInvalidHandle);
  EXPECT_EQ(cuda.table()->destroy_event(event), kCudaSuccess);
  EXPECT_EQ(cuda.table()->destroy_event(event), kCudaInvalidHandle);
}

TEST(FakeCudaTest, CapturingIsWhatTheTestSays) {
  FakeCuda cuda({});
  void* stream = nullptr;
  ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
  for (int expected : {0, 1, 0}) {
    cuda.SetCapturing(stream, expected);
    int capturing = -1;
    EXPECT_EQ(cuda.table()->is_capturing(stream, &capturing), kCudaSuccess);
    EXPECT_EQ(capturing, expected);
  }
}

TEST(FakeCudaTest, EveryStreamHasANumber) {
  FakeCuda cuda({});
  std::set<uint64_t> ids;
  for (int i = 0; i < 3; ++i) {
    void* stream = nullptr;
    ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
    uint64_t id = 0;
    EXPECT_EQ(cuda.table()->stream_id(stream, &id), kCudaSuccess);
    ids.insert(id);
    EXPECT_EQ(cuda.table()->destroy_stream(stream), kCudaSuccess);
  }
  EXPECT_EQ(ids.size(), 3u);
}

TEST(FakeCudaTest, EnqueuedFunctionsAreCalledInTheOrderOfTheStream) {
  const FakeCuda cuda({.delay_seed = 3});
  std::string order;
  const auto append = [](void* context) { *static_cast<std::string*>(context) += 'f'; };
  auto* const memory = static_cast<char*>(Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 1));
  WriteDevice(memory, "x");
  ASSERT_EQ(fake_cuda_enqueue(nullptr, append, &order), 0);
  ASSERT_EQ(cuda.table()->fill_zero(memory, 1, nullptr), kCudaSuccess);
  ASSERT_EQ(fake_cuda_enqueue(nullptr, append, &order), 0);
  Finish(cuda);
  EXPECT_EQ(order, "ff");
  EXPECT_EQ(ReadDevice(memory, 1), std::string(1, '\0'));
}

TEST(FakeCudaTest, AWaitIsForItsRecordingEvenIfALaterOneIsComplete) {
  const FakeCuda cuda({});
  void* event = nullptr;
  void* streams[3] = {};
  ASSERT_EQ(cuda.table()->create_event(0, &event), kCudaSuccess);
  for (void*& stream : streams) ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
  StreamHold hold(streams[0]);
  ASSERT_EQ(cuda.table()->record_event(event, streams[0]), kCudaSuccess);
  ASSERT_EQ(cuda.table()->wait_event(streams[2], event), kCudaSuccess);
  std::atomic<bool> is_released = false;
  const auto check = [](void* released) { EXPECT_TRUE(static_cast<std::atomic<bool>*>(released)->load()); };
  ASSERT_EQ(fake_cuda_enqueue(streams[2], check, &is_released), 0);
  ASSERT_EQ(cuda.table()->record_event(event, streams[1]), kCudaSuccess);
  ASSERT_EQ(cuda.table()->synchronize_event(event), kCudaSuccess);
  is_released = true;
  hold.Release();
  fake_cuda_wait_for_device();
}

TEST(FakeCudaTest, KernelsWorkOnWhatTheyWereLaunchedWith) {
  const FakeCuda cuda({.host_access = FakeMemory::HostAccess::kFatal});
  const std::string content = "abcdefgh";
  void* const input = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  void* const wire = Allocate(cuda, RONDA_CUDA_PINNED_HOST_MEMORY, 8);
  void* const output = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  WriteDevice(input, content);
  kernels::cuda::PackSegment packed = {.input = input, .count = 2};
  const kernels::cuda::PackCall pack = {.segments = &packed, .segment_count = 1, .buffer = wire};
  ASSERT_EQ(cuda.table()->pack(&pack, nullptr), kCudaSuccess);
  packed = {};
  const kernels::cuda::UnpackSegment unpacked = {.output = output, .count = 2};
  const kernels::cuda::UnpackCall unpack = {.segments = &unpacked, .segment_count = 1, .buffer = wire};
  ASSERT_EQ(cuda.table()->unpack(&unpack, nullptr), kCudaSuccess);
  Finish(cuda);
  EXPECT_EQ(ReadDevice(output, 8), content);
}

TEST(FakeCudaTest, KernelsRefuseMemoryThatTheDeviceCannotAddress) {
  const FakeCuda cuda({});
  float pageable[2] = {};
  void* const wire = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  kernels::cuda::PackSegment segment = {.input = pageable, .count = 2};
  const kernels::cuda::PackCall call = {.segments = &segment, .segment_count = 1, .buffer = wire};
  EXPECT_EQ(cuda.table()->pack(&call, nullptr), kCudaInvalidValue);
  segment = {.input = wire, .count = 3};
  EXPECT_EQ(cuda.table()->pack(&call, nullptr), kCudaInvalidValue);
}

TEST(FakeCudaTest, TimeBetweenEventsIsTheStreams) {
  const FakeCuda cuda({});
  void* begin = nullptr;
  void* end = nullptr;
  ASSERT_EQ(cuda.table()->create_event(1, &begin), kCudaSuccess);
  ASSERT_EQ(cuda.table()->create_event(1, &end), kCudaSuccess);
  ASSERT_EQ(cuda.table()->record_event(begin, nullptr), kCudaSuccess);
  ASSERT_EQ(cuda.table()->record_event(end, nullptr), kCudaSuccess);
  Finish(cuda);
  float ms = -1;
  EXPECT_EQ(cuda.table()->elapsed_ms(begin, end, &ms), kCudaSuccess);
  EXPECT_GE(ms, 0);
}

TEST(FakeCudaDeathTest, HostCodeThatTouchesADevicesMemoryIsStopped) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch = [] {
    const FakeCuda cuda({.host_access = FakeMemory::HostAccess::kFatal});
    *static_cast<volatile char*>(Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 1)) = 'x';
  };
  EXPECT_DEATH(touch(), "");
}

// With kLazy, launches wait for the device until it has been prepared, like a launch for which CUDA must first load the
// kernel.
TEST(FakeCudaTest, LaunchWaitsForTheDeviceUntilItHasBeenPrepared) {
  const FakeCuda cuda({.devices = 2, .loading = FakeCuda::Options::Loading::kLazy});
  void* streams[2] = {};
  for (void*& stream : streams) ASSERT_EQ(cuda.table()->create_stream(&stream), kCudaSuccess);
  void* memory = nullptr;
  ASSERT_EQ(cuda.table()->allocate(RONDA_CUDA_DEVICE_MEMORY, sizeof(float), &memory), kCudaSuccess);
  const kernels::cuda::PackSegment segment = {.input = memory, .count = 1};
  const kernels::cuda::PackCall call = {.segments = &segment, .segment_count = 1, .buffer = memory};
  std::atomic<bool> is_launched{false};
  {
    StreamHold hold(streams[0]);
    std::thread launcher([&] {
      EXPECT_EQ(cuda.table()->pack(&call, streams[1]), kCudaSuccess);
      is_launched = true;
    });
    absl::SleepFor(absl::Milliseconds(5));
    EXPECT_FALSE(is_launched);
    hold.Release();
    launcher.join();
  }
  ASSERT_EQ(cuda.table()->prepare_device(), kCudaSuccess);
  {
    const StreamHold hold(streams[0]);
    EXPECT_EQ(cuda.table()->pack(&call, streams[1]), kCudaSuccess);
  }
  for (void* stream : streams) EXPECT_EQ(cuda.table()->destroy_stream(stream), kCudaSuccess);
  EXPECT_EQ(cuda.table()->release(RONDA_CUDA_DEVICE_MEMORY, memory), kCudaSuccess);
}

// --- Misuse ---

TEST(FakeCudaTest, MemoryIsNotUsedBehindTheStreamThatFreesIt) {
  for (const bool waits : {true, false}) {
    FakeCuda cuda({});
    void* const memory = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
    void* const kept = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
    void* other = nullptr;
    void* freed = nullptr;
    ASSERT_EQ(cuda.table()->create_stream(&other), kCudaSuccess);
    ASSERT_EQ(cuda.table()->create_event(0, &freed), kCudaSuccess);
    StreamHold hold(other);
    ASSERT_EQ(cuda.table()->copy(kept, memory, 8, other), kCudaSuccess);
    ASSERT_EQ(cuda.table()->record_event(freed, other), kCudaSuccess);
    if (waits) {
      hold.Release();
      ASSERT_EQ(cuda.table()->wait_event(nullptr, freed), kCudaSuccess);
    }
    cuda.FreeOn(nullptr, memory);
    Finish(cuda);
    EXPECT_EQ(cuda.table()->copy(kept, memory, 8, nullptr), kCudaInvalidValue);
    hold.Release();
    while (cuda.table()->record_event(freed, other) == kCudaSuccess && !waits) {
    }
    EXPECT_EQ(cuda.table()->record_event(freed, other), waits ? kCudaSuccess : kCudaIllegalAddress);
  }
}

TEST(FakeCudaTest, KernelsAndEventsAreOfOneDevice) {
  FakeCuda cuda({});
  const ronda_cuda_plugin& table = *cuda.table();
  void* const memory = Allocate(cuda, RONDA_CUDA_DEVICE_MEMORY, 8);
  void* stream = nullptr;
  void* event = nullptr;
  ASSERT_EQ(table.create_stream(&stream), kCudaSuccess);
  ASSERT_EQ(table.create_event(1, &event), kCudaSuccess);
  ASSERT_EQ(table.record_event(event, stream), kCudaSuccess);

  ASSERT_EQ(table.use_device(1), kCudaSuccess);
  void* others_stream = nullptr;
  void* others_event = nullptr;
  ASSERT_EQ(table.create_stream(&others_stream), kCudaSuccess);
  ASSERT_EQ(table.create_event(1, &others_event), kCudaSuccess);
  EXPECT_EQ(table.record_event(event, others_stream), kCudaInvalidHandle);
  EXPECT_EQ(table.wait_event(others_stream, event), kCudaSuccess) << "streams wait for other devices";
  float ms = 0;
  EXPECT_EQ(table.elapsed_ms(event, others_event, &ms), kCudaInvalidHandle);

  const kernels::cuda::AddScaledCall call = {.a = memory, .b = memory, .dst = memory, .count = 1};
  EXPECT_EQ(table.add_scaled(&call, stream), kCudaInvalidHandle) << "the current device is another";
  ASSERT_EQ(table.use_device(0), kCudaSuccess);
  EXPECT_EQ(table.add_scaled(&call, stream), kCudaSuccess);
}

TEST(FakeCudaTest, OnlyEventsWithTimesHaveThem) {
  FakeCuda cuda({});
  void* with = nullptr;
  void* without = nullptr;
  ASSERT_EQ(cuda.table()->create_event(1, &with), kCudaSuccess);
  ASSERT_EQ(cuda.table()->create_event(0, &without), kCudaSuccess);
  float ms = 0;
  EXPECT_EQ(cuda.table()->elapsed_ms(with, with, &ms), kCudaSuccess);
  EXPECT_EQ(cuda.table()->elapsed_ms(with, without, &ms), kCudaInvalidHandle);
  EXPECT_EQ(cuda.table()->elapsed_ms(without, with, &ms), kCudaInvalidHandle);
}

TEST(FakeCudaTest, ThreadsThatWaitForADeviceAreCounted) {
  FakeCuda cuda({});
  void* event = nullptr;
  ASSERT_EQ(cuda.table()->create_event(0, &event), kCudaSuccess);
  const size_t before = FakeCuda::HostWaitsOfThisThread();
  int done = 0;
  ASSERT_EQ(cuda.table()->query_event(event, &done), kCudaSuccess);
  EXPECT_EQ(FakeCuda::HostWaitsOfThisThread(), before) << "it was there";
  StreamHold hold(nullptr);
  ASSERT_EQ(cuda.table()->record_event(event, nullptr), kCudaSuccess);
  ASSERT_EQ(cuda.table()->query_event(event, &done), kCudaSuccess);
  EXPECT_EQ(FakeCuda::HostWaitsOfThisThread(), before + 1);
  hold.Release();
  Finish(cuda);
  EXPECT_EQ(FakeCuda::HostWaitsOfThisThread(), before + 2);
}

}  // namespace
}  // namespace ronda::testing
