// SPDX-License-Identifier: Apache-2.0

// Compares DistributedOptimizer with gradients in GPU memory against the same training in host memory.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_gpu/fake_gpu.h"

namespace {

using ::ronda::testing::FakeGpuArray;
using ::ronda::testing::FakeGpuStream;
using ::testing::Each;

constexpr int kRanks = 2;
constexpr int kSteps = 16;  // the schedule is locked after four
constexpr std::size_t kTensors = 3;
constexpr std::size_t kSizes[kTensors] = {5, 1000, 33};

using Options = ronda::DistributedOptimizerOptions;

class DeviceOptimizerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    setenv("RONDA_CUDA_PLUGIN", ronda::testing::kFakeCudaPath, 1);
    setenv("RONDA_NCCL_LIBRARY", ronda::testing::kFakeNcclLibraryPath, 1);
    setenv("RONDA_DEVICE_BACKEND", GetParam().c_str(), 1);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, DeviceOptimizerTest, ::testing::Values("nccl", "staged", "peer"),
                         [](const auto& backend) { return backend.param; });

// Returns element i of a gradient. It depends on the parameter, the rank and the step.
float Gradient(float parameter, int rank, int step, std::size_t i) {
  return parameter * 0.25f + static_cast<float>(rank + 1) / static_cast<float>(step + 3) + static_cast<float>(i % 7);
}

// Backward() and Descend() perform a training step for one tensor, in any kind of memory.
void Backward(const float* parameters, float* gradients, std::size_t size, int rank, int step) {
  for (std::size_t i = 0; i < size; ++i) gradients[i] = Gradient(parameters[i], rank, step, i);
}
void Descend(float* parameters, float* velocities, const float* gradients, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    velocities[i] = 0.5f * velocities[i] + gradients[i];
    parameters[i] -= 0.125f * velocities[i];
  }
}

std::string NameOf(std::size_t tensor) { return "t" + std::to_string(tensor); }

struct HostModel {
  HostModel() {
    for (const std::size_t size : kSizes) {
      for (auto* arrays : {&parameters, &velocities, &gradients}) arrays->emplace_back(size);
    }
  }
  void step() {
    for (std::size_t t = 0; t < kTensors; ++t) {
      Descend(parameters[t].data(), velocities[t].data(), gradients[t].data(), kSizes[t]);
    }
  }
  std::vector<ronda::Tensor> gradient_views() {
    std::vector<ronda::Tensor> views;
    for (std::size_t t = 0; t < kTensors; ++t) views.push_back(ronda::tensor(NameOf(t), gradients[t]));
    return views;
  }
  void backward(std::size_t t, int step) {
    Backward(parameters[t].data(), gradients[t].data(), kSizes[t], ronda::rank(), step);
  }

  std::vector<std::vector<float>> parameters, velocities, gradients;
};

// Like HostModel, but all arithmetic runs on a GPU stream.
struct DeviceModel {
  explicit DeviceModel(const FakeGpuStream& stream) : stream(stream) {
    for (const std::size_t size : kSizes) {
      for (auto* arrays : {&parameters, &velocities, &gradients}) {
        arrays->push_back(std::make_unique<FakeGpuArray<float>>(stream, size));
      }
    }
  }
  void step() {
    ++steps;
    for (std::size_t t = 0; t < kTensors; ++t) {
      stream.Enqueue([p = parameters[t]->data(), v = velocities[t]->data(), g = gradients[t]->data(),
                      size = kSizes[t]] { Descend(p, v, g, size); });
    }
  }
  std::vector<ronda::Tensor> gradient_views() {
    std::vector<ronda::Tensor> views;
    for (std::size_t t = 0; t < kTensors; ++t) {
      views.push_back(
          ronda::cuda_tensor(NameOf(t), gradients[t]->data(), {static_cast<std::int64_t>(kSizes[t])}, stream.handle()));
    }
    return views;
  }
  void backward(std::size_t t, int step) {
    stream.Enqueue([p = parameters[t]->data(), g = gradients[t]->data(), size = kSizes[t], rank = ronda::rank(), step] {
      Backward(p, g, size, rank, step);
    });
  }

  const FakeGpuStream& stream;
  std::vector<std::unique_ptr<FakeGpuArray<float>>> parameters, velocities, gradients;
  int steps = 0;
};

// Trains for kSteps steps. In some steps, some gradients are not announced.
template <class Model>
void Train(Model& model, const Options& options) {
  ronda::DistributedOptimizer optimizer(model, model.gradient_views(), options);
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t t = kTensors; t-- > 0;) {
      if (t == 1 && step % 5 == 3) continue;
      model.backward(t, step);
      optimizer.gradient_ready(t);
    }
    optimizer.step();
  }
}

void ExpectTheSameBits(const Options& options) {
  ronda::run_threads(kRanks, [&] {
    HostModel host;
    Train(host, options);
    const FakeGpuStream stream(ronda::rank());
    DeviceModel device(stream);
    Train(device, options);
    EXPECT_EQ(device.steps, kSteps);
    for (std::size_t t = 0; t < kTensors; ++t) EXPECT_EQ(device.parameters[t]->Get(), host.parameters[t]) << t;
  });
}

TEST_P(DeviceOptimizerTest, ParametersAreThoseOfTheHostBitForBit) { ExpectTheSameBits({}); }

TEST_P(DeviceOptimizerTest, AlsoCompressedAndInGroups) {
  Options options;
  options.compression = ronda::Compression::bf16;
  options.group_count = 2;
  ExpectTheSameBits(options);
}

TEST_P(DeviceOptimizerTest, UnannouncedGradientIsZeroOnTheDevice) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    DeviceModel model(stream);
    for (const auto& gradient : model.gradients) gradient->Set(std::vector<float>(gradient->size(), 7));
    ronda::DistributedOptimizer optimizer(model, model.gradient_views());
    optimizer.gradient_ready(std::size_t{0});
    optimizer.step();
    EXPECT_THAT(model.gradients[0]->Get(), Each(7.0f));
    EXPECT_THAT(model.gradients[1]->Get(), Each(0.0f));
  });
}

TEST_P(DeviceOptimizerTest, EachGradientMayHaveAStreamOfItsOwn) {
  ronda::run_threads(kRanks, [] {
    constexpr float kMean = (1 + 2) / 2.0f;
    const FakeGpuStream first(ronda::rank()), second(ronda::rank());
    const FakeGpuArray<float> a(first, 8), b(second, 8), c(first, 8);
    const auto view = [](const char* name, const FakeGpuArray<float>& array, const FakeGpuStream& stream) {
      return ronda::cuda_tensor(name, array.data(), {8}, stream.handle());
    };
    struct {
      void step() { ++steps; }
      int steps = 0;
    } counter;
    std::vector<float> on_host(3);
    ronda::DistributedOptimizer optimizer(
        counter, {view("a", a, first), view("b", b, second), view("c", c, first), ronda::tensor("h", on_host)});
    for (int step = 0; step < 6; ++step) {
      const auto own = static_cast<float>(ronda::rank() + 1);
      for (const auto* array : {&a, &b, &c}) array->Set(std::vector<float>(8, own));
      on_host.assign(3, own);
      for (std::size_t i = 4; i > 0; --i) optimizer.gradient_ready(i - 1);
      optimizer.step();
      EXPECT_THAT(on_host, Each(kMean));
      for (const auto* array : {&a, &b, &c}) EXPECT_THAT(array->Get(), Each(kMean));
    }
    EXPECT_TRUE(optimizer.try_finish().ok());
    EXPECT_EQ(counter.steps, 6);
  });
}

TEST_P(DeviceOptimizerTest, StepsThatOverflowOnOneDeviceAreLeftOutOnAll) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    DeviceModel model(stream);
    Options options;
    options.skip_on_overflow = true;
    ronda::DistributedOptimizer optimizer(model, model.gradient_views(), options);
    for (int step = 0; step < 6; ++step) {
      for (std::size_t t = 0; t < kTensors; ++t) {
        model.backward(t, step);
        const bool overflows = step == 2 && t == 1 && ronda::rank() == 1;
        if (overflows) stream.Enqueue([g = model.gradients[t]->data()] { g[9] = std::nanf(""); });
        optimizer.gradient_ready(t);
      }
      optimizer.step();
      EXPECT_EQ(optimizer.overflowed(), step == 2) << step;
    }
    EXPECT_EQ(model.steps, 5);
  });
}

}  // namespace
