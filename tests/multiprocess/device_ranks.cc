// SPDX-License-Identifier: Apache-2.0

// The program of a rank whose tensors are in GPU memory. The rank may share the GPU with others. It runs training steps
// with known values, and prints for example "rank 1 of 3: ok". RONDA_CUDA_PLUGIN selects a real or a fake GPU.
// DEVICE_RANKS_LARGE_STEPS is the number of steps with a large gradient, each of which takes seconds on a fake GPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "runtime/cuda/device.h"
#include "tests/testing/on_device.h"

namespace ronda::testing {
namespace {

constexpr int kSteps = 20;  // the schedule is locked after a few

// A rank's device and stream, and helpers for tensors on the device.
struct Trainer {
  std::shared_ptr<Device> device;
  std::unique_ptr<DeviceStream> stream;
  DeviceAccess access;

  DeviceMemory Tensor(const std::vector<float>& values) {
    DeviceMemory memory = access.Allocate(values.size() * sizeof(float));
    access.Write(memory.data(), {reinterpret_cast<const char*>(values.data()), memory.size()});
    return memory;
  }

  std::vector<float> ValuesOf(const void* memory, size_t count) {
    const std::string bytes = access.Read(memory, count * sizeof(float));
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  ronda::Tensor View(const std::string& name, const DeviceMemory& memory) const {
    const auto count = static_cast<int64_t>(memory.size() / sizeof(float));
    return cuda_tensor(name, reinterpret_cast<float*>(memory.data()), {count}, stream->handle());
  }
};

Trainer MakeTrainer() {
  const char* const path = std::getenv("RONDA_CUDA_PLUGIN");
  const absl::StatusOr<const ronda_cuda_plugin*> plugin = LoadCudaPlugin(path == nullptr ? "" : path);
  EXPECT_EQ(plugin.status(), absl::OkStatus());
  const absl::StatusOr<int> devices = CountDevices(**plugin);
  EXPECT_EQ(devices.status(), absl::OkStatus());
  std::shared_ptr<Device> device = *Device::Open(*plugin, local_rank() % *devices);
  std::unique_ptr<DeviceStream> stream = *DeviceStream::Create(device.get());
  const StreamHandle handle = stream->handle();
  return {.device = device, .stream = std::move(stream), .access = DeviceAccess(device, handle)};
}

// Returns the sum, over all ranks, of (rank + 1) * (step % 3 + 1) + `tensor`. The terms are small integers, so the sum
// is exact in every format and order.
float Expected(int step, size_t tensor) {
  const int ranks = size() * (size() + 1) / 2;
  return static_cast<float>(ranks * (step % 3 + 1)) + static_cast<float>(tensor) * static_cast<float>(size());
}

// Checks steps with gradients of several sizes, each of which is submitted as soon as it is computed. Only the stream
// waits for the results, not the host.
void CheckSteps(Trainer& trainer) {
  const size_t counts[] = {1, 1000, 100'003};
  for (int step = 0; step < kSteps; ++step) {
    std::vector<DeviceMemory> gradients;
    std::vector<Handle> handles;
    for (size_t i = 0; i < std::size(counts); ++i) {
      const float value = static_cast<float>((rank() + 1) * (step % 3 + 1)) + static_cast<float>(i);
      gradients.push_back(trainer.Tensor(std::vector<float>(counts[i], value)));
      ReduceOptions options;
      options.op = Op::Sum;
      options.compression = i == 1 ? Compression::fp16 : Compression::none;
      handles.push_back(allreduce_async(trainer.View("gradient" + std::to_string(i), gradients.back()), options));
    }
    for (size_t i = 0; i < handles.size(); ++i) {
      handles[i].synchronize_on(trainer.stream->handle());
      EXPECT_EQ(trainer.ValuesOf(gradients[i].data(), counts[i]), std::vector<float>(counts[i], Expected(step, i)))
          << "step " << step << ", gradient " << i;
    }
  }
}

// Checks a reducescatter of rows that cannot be divided evenly: one row more than there are ranks, with two elements
// per row.
void CheckReduceScatter(Trainer& trainer) {
  const int64_t rows = size() + 1;
  const int64_t first = rank() == 0 ? 0 : rank() + 1;
  const size_t own_count = rank() == 0 ? 4 : 2;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> values;
    for (int64_t i = 0; i < 2 * rows; ++i) values.push_back(static_cast<float>(i + (rank() + 1) * (step % 3 + 1)));
    const DeviceMemory memory = trainer.Tensor(values);
    ReduceOptions options;
    options.op = Op::Sum;
    auto own = reducescatter_async<float>(
        cuda_tensor("rows", reinterpret_cast<float*>(memory.data()), {rows, 2}, trainer.stream->handle()), options);
    own.synchronize_on(trainer.stream->handle());
    std::vector<float> expected;
    for (size_t i = 0; i < own_count; ++i) {
      expected.push_back(Expected(step, static_cast<size_t>(2 * first) + i));
    }
    EXPECT_EQ(trainer.ValuesOf(own.data(), own_count), expected) << "step " << step;
  }
}

// Checks a gradient that is larger than a chunk of the fusion buffer, and is packed into a different format, also in
// locked steps.
void CheckLargeGradient(Trainer& trainer) {
  constexpr size_t kCount = (size_t{34} << 20) / 2;  // 34 MiB of float16
  const char* const steps = std::getenv("DEVICE_RANKS_LARGE_STEPS");
  for (int step = 0; step < (steps == nullptr ? 1 : std::atoi(steps)); ++step) {
    const auto value = static_cast<float>((rank() + 1) * (step % 3 + 1));
    const DeviceMemory gradient = trainer.Tensor(std::vector<float>(kCount, value));
    ReduceOptions options;
    options.op = Op::Sum;
    options.compression = Compression::fp16;
    allreduce_async(trainer.View("large", gradient), options).synchronize_on(trainer.stream->handle());
    EXPECT_TRUE(trainer.ValuesOf(gradient.data(), kCount) == std::vector<float>(kCount, Expected(step, 0)))
        << "step " << step;
  }
}

// Equal gradients are averaged, orthogonal ones are added.
void CheckAdasum(Trainer& trainer) {
  const auto count = static_cast<size_t>(size());
  std::vector<float> own(count, 0);
  own[static_cast<size_t>(rank())] = 2;
  const DeviceMemory equal = trainer.Tensor(std::vector<float>(5000, 3));
  const DeviceMemory orthogonal = trainer.Tensor(own);
  grouped_allreduce("adasum", {trainer.View("equal", equal), trainer.View("orthogonal", orthogonal)},
                    {.op = Op::Adasum});
  for (const float value : trainer.ValuesOf(equal.data(), 5000)) EXPECT_FLOAT_EQ(value, 3);
  EXPECT_EQ(trainer.ValuesOf(orthogonal.data(), count), std::vector<float>(count, 2));
}

void CheckBroadcast(Trainer& trainer) {
  const DeviceMemory parameters = trainer.Tensor(std::vector<float>(5000, static_cast<float>(rank())));
  broadcast(trainer.View("parameters", parameters), size() - 1);
  EXPECT_EQ(trainer.ValuesOf(parameters.data(), 5000), std::vector<float>(5000, static_cast<float>(size() - 1)));
}

// Checks a value in host memory, such as a loss.
void CheckHostMemory() {
  std::vector<float> loss = {static_cast<float>(rank() + 1)};
  allreduce(tensor("loss", loss), {.op = Op::Sum});
  EXPECT_EQ(loss[0], static_cast<float>(size() * (size() + 1) / 2));
}

int Run() {
  init();
  {
    Trainer trainer = MakeTrainer();
    CheckBroadcast(trainer);
    CheckSteps(trainer);
    CheckReduceScatter(trainer);
    CheckLargeGradient(trainer);
    CheckAdasum(trainer);
    CheckHostMemory();
  }
  const bool is_ok = !::testing::Test::HasFailure();
  std::printf("rank %d of %d: %s\n", rank(), size(), is_ok ? "ok" : "failed");
  shutdown();
  return is_ok ? 0 : 1;
}

}  // namespace
}  // namespace ronda::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return ronda::testing::Run();
}
