// SPDX-License-Identifier: Apache-2.0

// Tests the plugin on the stand-ins for CUDA's libraries. Some tests also call functions of the fake devices.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/device.h"
#include "tests/runtime/cuda/plugin_under_test.h"

namespace ronda::testing {

constexpr char kFakeCuda[] = "tests/testing/fake_cuda/libfake_cuda.so";

std::string PluginUnderTest() {
  setenv("FAKE_CUDA_LIBRARY", std::filesystem::absolute(kFakeCuda).c_str(), 1);
  return std::filesystem::absolute("tests/testing/fake_cudart/libronda_cuda_on_fakes.so");
}

namespace {

class StandInPluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<const ronda_cuda_plugin*> plugin = LoadCudaPlugin(PluginUnderTest());
    ASSERT_EQ(plugin.status(), absl::OkStatus());
    plugin_ = *plugin;
    if (!CountDevices(*plugin_).ok()) GTEST_SKIP() << "without a device";
    ASSERT_EQ(plugin_->use_device(0), 0);
    ASSERT_EQ(plugin_->create_stream(&stream_), 0);
  }

  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_EQ(plugin_->destroy_stream(stream_), 0);
    }
  }

  int CurrentDevice() const {
    int device = -1;
    EXPECT_EQ(plugin_->current_device(&device), 0);
    return device;
  }

  // Finds a function of the fake devices by its name.
  template <typename Function>
  Function* FakeFunction(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(dlopen(std::getenv("FAKE_CUDA_LIBRARY"), RTLD_NOW), name));
  }

  // Finds a function of the CUDA runtime that the plugin uses.
  template <typename Function>
  Function* RuntimeFunction(const char* name) const {
    void* const runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<Function*>(dlsym(runtime, name));
  }

  void Finish() const {
    void* event = nullptr;
    ASSERT_EQ(plugin_->create_event(0, &event), 0);
    ASSERT_EQ(plugin_->record_event(event, stream_), 0);
    ASSERT_EQ(plugin_->synchronize_event(event), 0);
    ASSERT_EQ(plugin_->destroy_event(event), 0);
  }

  template <typename T>
  T* Pinned(const std::vector<T>& values) {
    memory_.push_back(*device_->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, values.size() * sizeof(T), "a test"));
    return static_cast<T*>(std::memcpy(memory_.back().data(), values.data(), values.size() * sizeof(T)));
  }

  void OpenDevice() { device_ = *Device::Open(plugin_, 0); }

  const ronda_cuda_plugin* plugin_ = nullptr;
  void* stream_ = nullptr;
  std::shared_ptr<Device> device_;
  std::vector<DeviceMemory> memory_;
};

TEST_F(StandInPluginTest, PartsOfAGpuDifferInTheirUuids) {
  std::vector<ronda_cuda_device> devices(3);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(plugin_->describe(i, &devices[static_cast<size_t>(i)]), 0);
  EXPECT_STREQ(devices[0].pci_bus, devices[1].pci_bus);
  EXPECT_STRNE(devices[0].pci_bus, devices[2].pci_bus);
  EXPECT_STREQ(devices[0].uuid, "fa4e0000-0000-4000-8000-000000000000");
  EXPECT_STREQ(devices[1].uuid, "fa4e0000-0000-4000-8000-000000000001");
}

TEST_F(StandInPluginTest, DeviceIsRestoredOnlyIfItHasAContext) {
  const auto has_context = FakeFunction<int(int)>("fake_cuda_has_context");
  ASSERT_EQ(plugin_->restore_device(3), 0);
  EXPECT_EQ(CurrentDevice(), 0);
  EXPECT_EQ(has_context(3), 0);
  ASSERT_EQ(plugin_->use_device(2), 0);
  ASSERT_EQ(plugin_->use_device(0), 0);
  ASSERT_EQ(plugin_->restore_device(2), 0);
  EXPECT_EQ(CurrentDevice(), 2);
  EXPECT_NE(plugin_->restore_device(99), 0);
  EXPECT_NE(plugin_->describe(99, nullptr), 0);
}

TEST_F(StandInPluginTest, QueriesTellWhetherTheWorkIsDone) {
  const auto enqueue = FakeFunction<int(void*, void (*)(void*), void*)>("fake_cuda_enqueue");
  std::mutex gate;
  gate.lock();
  const auto pass = [](void* context) { const std::lock_guard<std::mutex> lock(*static_cast<std::mutex*>(context)); };
  void* event = nullptr;
  ASSERT_EQ(plugin_->create_event(0, &event), 0);
  ASSERT_EQ(enqueue(stream_, pass, &gate), 0);
  ASSERT_EQ(plugin_->record_event(event, stream_), 0);
  ASSERT_EQ(plugin_->wait_event(nullptr, event), 0);
  int done = -1;
  EXPECT_EQ(plugin_->query_event(event, &done), 0) << "not ready is no error";
  EXPECT_EQ(done, 0);
  gate.unlock();
  ASSERT_EQ(plugin_->synchronize_event(event), 0);
  EXPECT_EQ(plugin_->query_event(event, &done), 0);
  EXPECT_EQ(done, 1);
  ASSERT_EQ(plugin_->destroy_event(event), 0);
  EXPECT_NE(plugin_->query_event(event, &done), 0);
}

TEST_F(StandInPluginTest, StreamsOfThePluginHaveTheHighestPriority) {
  int lowest = 0, highest = 0, priority = 0;
  ASSERT_EQ(RuntimeFunction<int(int*, int*)>("cudaDeviceGetStreamPriorityRange")(&lowest, &highest), 0);
  ASSERT_EQ(RuntimeFunction<int(void*, int*)>("cudaStreamGetPriority")(stream_, &priority), 0);
  EXPECT_LT(highest, lowest);
  EXPECT_EQ(priority, highest);
}

TEST_F(StandInPluginTest, ErrorsAreClearedOnceTheyAreReturned) {
  void* memory = nullptr;
  ASSERT_NE(plugin_->allocate(RONDA_CUDA_DEVICE_MEMORY, size_t{1} << 50, &memory), 0);
  char text[100] = "";
  plugin_->error_text(2, text, sizeof(text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(RuntimeFunction<int()>("cudaPeekAtLastError")(), 0);
}

// A trainer captures in CUDA's strictest mode, in which a call such as cudaMalloc on any thread breaks the capture.
TEST_F(StandInPluginTest, CallsOfThePluginLeaveACaptureValid) {
  const auto begin = FakeFunction<int(void*, int)>("fake_cuda_begin_capture");
  const auto end = FakeFunction<int(void*, void**)>("fake_cuda_end_capture");
  constexpr int kGlobal = 0;
  void* captured = nullptr;
  void* event = nullptr;
  ASSERT_EQ(plugin_->create_stream(&captured), 0);
  ASSERT_EQ(plugin_->create_event(0, &event), 0);
  ASSERT_EQ(plugin_->record_event(event, stream_), 0);
  ASSERT_EQ(begin(captured, kGlobal), 0);

  void* memory = nullptr;
  void* made = nullptr;
  int done = 0;
  int capturing = 0;
  for (const ronda_cuda_memory kind : {RONDA_CUDA_DEVICE_MEMORY, RONDA_CUDA_PINNED_HOST_MEMORY}) {
    EXPECT_EQ(plugin_->allocate(kind, 8, &memory), 0);
    EXPECT_EQ(plugin_->release(kind, memory), 0);
  }
  EXPECT_EQ(plugin_->create_stream(&made), 0);
  EXPECT_EQ(plugin_->destroy_stream(made), 0);
  EXPECT_EQ(plugin_->create_event(1, &made), 0);
  EXPECT_EQ(plugin_->destroy_event(made), 0);
  EXPECT_EQ(plugin_->query_event(event, &done), 0);
  EXPECT_EQ(plugin_->synchronize_event(event), 0);
  EXPECT_EQ(plugin_->prepare_device(), 0);
  EXPECT_EQ(plugin_->is_capturing(captured, &capturing), 0);
  EXPECT_EQ(capturing, 1);
  uint64_t id = 0;
  EXPECT_NE(plugin_->stream_id(captured, &id), 0);
  void* graph = nullptr;
  EXPECT_EQ(end(captured, &graph), 0);
  EXPECT_EQ(FakeFunction<int(void*)>("fake_cuda_destroy_graph")(graph), 0);

  // A direct cudaMalloc call that bypasses the plugin breaks the capture.
  ASSERT_EQ(begin(captured, kGlobal), 0);
  void* const runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(reinterpret_cast<int (*)(void**, size_t)>(dlsym(runtime, "cudaMalloc"))(&memory, 8), 0);
  EXPECT_NE(end(captured, &graph), 0);
  EXPECT_EQ(plugin_->destroy_event(event), 0);
  EXPECT_EQ(plugin_->destroy_stream(captured), 0);
}

TEST_F(StandInPluginTest, KernelsOfEveryKindAreLaunched) {
  namespace calls = kernels::cuda;
  OpenDevice();
  auto* const values = Pinned<float>({1, 2, 3, 4, 10, 20, 30, 40});
  auto* const sums = Pinned<float>({0, 0, 0, 0});
  const calls::ReduceCall reduce = {
      .sources = values, .stride = 4 * sizeof(float), .source_count = 2, .dst = sums, .granules = 4};
  ASSERT_EQ(plugin_->reduce(&reduce, stream_), 0);
  const calls::Extent tensor = {.data = values, .count = 4};
  auto* const found = Pinned<uint8_t>({7});
  const calls::NonFiniteCall search = {.tensors = &tensor, .tensor_count = 1, .found = found};
  ASSERT_EQ(plugin_->find_non_finite(&search, stream_), 0);
  auto* const scaled = Pinned<float>({0, 0});
  const calls::AddScaledCall add = {.a = values, .b = values + 2, .dst = scaled, .count = 2, .b_scale = 10};
  ASSERT_EQ(plugin_->add_scaled(&add, stream_), 0);
  auto* const dots = Pinned<double>({0, 0, 0});
  auto* const scratch = Pinned<double>(std::vector<double>(3 * calls::kDotsMaxParts));
  auto* const a = Pinned<float>({1, 0});
  auto* const b = Pinned<float>({0, 2});
  const calls::Extent first = {.data = a, .count = 2};
  const calls::Extent second = {.data = b, .count = 2};
  const calls::DotsCall multiply = {.a = &first, .b = &second, .pair_count = 1, .dots = dots, .scratch = scratch};
  ASSERT_EQ(plugin_->adasum_dots(&multiply, stream_), 0);
  const calls::CombineCall combine = {.a = &first, .b = &second, .pair_count = 1, .dots = dots};
  ASSERT_EQ(plugin_->adasum_combine(&combine, stream_), 0);
  Finish();
  EXPECT_EQ(std::vector<float>(sums, sums + 4), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(found[0], 0);
  EXPECT_EQ(std::vector<float>(scaled, scaled + 2), (std::vector<float>{31, 42}));
  EXPECT_EQ(std::vector<double>(dots, dots + 3), (std::vector<double>{0, 1, 4}));
  EXPECT_EQ(std::vector<float>(a, a + 2), (std::vector<float>{1, 2})) << "at right angles, Adasum is the sum";
  memory_.clear();
}

}  // namespace
}  // namespace ronda::testing
