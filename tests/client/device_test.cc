// Tensors in GPUs' memory, as trainers submit them: ranks are threads, GPUs are fake, NCCL too.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_gpu/fake_gpu.h"

namespace {

using ::ronda::testing::FakeGpuArray;
using ::ronda::testing::FakeGpuStream;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 2;

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("RONDA_CUDA_PLUGIN", ronda::testing::kFakeCudaPath, 1);
    setenv("RONDA_NCCL_LIBRARY", ronda::testing::kFakeNcclLibraryPath, 1);
    setenv("RONDA_DEVICE_BACKEND", "nccl", 1);
  }
};

ronda::Tensor View(const std::string& name, const FakeGpuArray<float>& array, const FakeGpuStream& stream) {
  return ronda::cuda_tensor(name, array.data(), {static_cast<std::int64_t>(array.size())}, stream.handle());
}

// Keeps a stream from going on until it is opened.
class Gate {
 public:
  explicit Gate(const FakeGpuStream& stream) {
    stream.Enqueue([is_open = is_open_] {
      while (!is_open->load()) std::this_thread::yield();
    });
  }
  ~Gate() { Open(); }
  void Open() { *is_open_ = true; }

 private:
  // The stream looks at it once more after it has been opened.
  const std::shared_ptr<std::atomic<bool>> is_open_ = std::make_shared<std::atomic<bool>>(false);
};

float Own() { return static_cast<float>(ronda::rank() + 1); }

constexpr float kSum = 3;

TEST_F(DeviceTest, TheHostMayWaitForTheDevice) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(100, Own()));
    const ronda::Handle handle = ronda::allreduce_async(View("x", array, stream), {ronda::Op::Sum});
    handle.synchronize();
    EXPECT_TRUE(handle.poll());
    EXPECT_THAT(array.Get(), Each(kSum));
    ronda::allreduce(View("x", array, stream), {ronda::Op::Max});
    EXPECT_THAT(array.Get(), Each(kSum));
  });
}

TEST_F(DeviceTest, InTheStreamFormNobodyWaitsForTheDevice) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, 100);
    array.Get();
    {
      Gate gate(stream);
      array.Set(std::vector<float>(100, Own()));
      ronda::Handle handle = ronda::allreduce_async(View("x", array, stream), {ronda::Op::Sum});
      EXPECT_TRUE(handle.wait_on(stream.handle()).ok());
      EXPECT_FALSE(handle.poll()) << "the device cannot have got there";
      handle = ronda::Handle();  // does not wait either: the gate is closed
      gate.Open();
    }
    EXPECT_THAT(array.Get(), Each(kSum));
  });
}

TEST_F(DeviceTest, OfATensorInHostMemoryTheStreamFormIsTheHosts) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    std::vector<float> values(3, Own());
    const ronda::Handle handle = ronda::allreduce_async(ronda::tensor("x", values), {ronda::Op::Sum});
    handle.synchronize_on(stream.handle());
    EXPECT_TRUE(handle.poll());
    EXPECT_THAT(values, Each(kSum));
    EXPECT_TRUE(ronda::Handle().wait_on(stream.handle()).ok());
  });
}

// The elements of a result in the GPU's memory, for work on `stream`.
std::vector<float> Read(ronda::OutputHandle<float>& handle, const FakeGpuStream& stream) {
  EXPECT_EQ(handle.memory(), RONDA_MEMORY_CUDA);
  handle.synchronize_on(stream.handle());
  std::vector<float> values(handle.count());
  const float* const data = handle.data();
  stream.Enqueue([&values, data] { std::copy_n(data, values.size(), values.begin()); });
  stream.Synchronize();
  return values;
}

TEST_F(DeviceTest, ResultsThatRondaOwnsAreInTheGpusMemory) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, {Own(), 10 * Own()});
    const ronda::Tensor view = View("x", array, stream);
    auto gathered = ronda::allgather_async<float>(view);
    EXPECT_THAT(Read(gathered, stream), ElementsAre(1, 10, 2, 20));
    EXPECT_THAT(gathered.rows_per_rank(), ElementsAre(2, 2));
    auto scattered = ronda::reducescatter_async<float>(view, {ronda::Op::Sum});
    EXPECT_THAT(Read(scattered, stream), ElementsAre(ronda::rank() == 0 ? 3 : 30));
    auto exchanged = ronda::alltoall_async<float>(view);
    EXPECT_THAT(Read(exchanged, stream), ronda::rank() == 0 ? ElementsAre(1, 2) : ElementsAre(10, 20));
    auto dealt = ronda::scatter_async<float>(view, /*root=*/1);
    EXPECT_THAT(Read(dealt, stream), ElementsAre(ronda::rank() == 0 ? 2 : 20));
    auto collected = ronda::gather_async<float>(view, /*root=*/0);
    EXPECT_EQ(Read(collected, stream).size(), ronda::rank() == 0 ? 4u : 0u);
  });
}

TEST_F(DeviceTest, ResultsInTheGpusMemoryAreNotCopiedByTheHost) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, {Own(), Own()});
    const ronda::Tensor view = View("x", array, stream);
    auto handle = ronda::allgather_async<float>(view);
    EXPECT_THROW(handle.result(), ronda::Error);
    handle.synchronize();
    EXPECT_THAT(ronda::try_reducescatter<float>(view).status().message(), HasSubstr("copy it from data()"));
    EXPECT_EQ(ronda::try_allgather_async<double>(view).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST_F(DeviceTest, ParametersOfBothMemoriesAreBroadcast) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(5, Own()));
    std::vector<float> values(4, Own());
    ronda::broadcast_parameters({View("device", array, stream), ronda::tensor("host", values)}, /*root=*/1);
    EXPECT_THAT(array.Get(), Each(2.0f));
    EXPECT_THAT(values, Each(2.0f));
  });
}

TEST_F(DeviceTest, MemoryThatIsNotWhatItIsSaidToBeIsExplained) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    std::vector<float> host(4);
    const ronda::Tensor odd = ronda::cuda_tensor("x", host.data(), {4}, stream.handle());
    const ronda::Status status = ronda::try_allreduce(odd);
    EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'x'"), HasSubstr("host's")));
    EXPECT_EQ(ronda_cuda_zero(host.data(), 4, stream.handle()), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_cuda_zero: "));
    const FakeGpuArray<float> array(stream, std::vector<float>(4, Own()));
    ronda::allreduce(View("x", array, stream), {ronda::Op::Sum});
    EXPECT_THAT(array.Get(), Each(kSum)) << "the next one works";
  });
}

TEST_F(DeviceTest, WithoutThePluginTensorsOfGpusAreRefusedAndOthersAreNot) {
  setenv("RONDA_CUDA_PLUGIN", "/nowhere/libronda_cuda.so", 1);
  ronda::run_threads(kRanks, [] {
    std::vector<float> values(4, Own());
    const ronda::Status status = ronda::try_allreduce(ronda::cuda_tensor("x", values.data(), {4}, nullptr));
    EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'x'"), HasSubstr("/nowhere/libronda_cuda.so")));
    ronda::allreduce(ronda::tensor("x", values), {ronda::Op::Sum});
    EXPECT_THAT(values, Each(kSum));
  });
}

TEST_F(DeviceTest, OverflowIsFoundOnTheDevice) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    for (const bool overflows : {false, true}) {
      const FakeGpuArray<float> array(stream, {Own(), overflows && ronda::rank() == 1 ? INFINITY : 1});
      ronda::ReduceOptions options;
      options.detect_overflow = true;
      const ronda::Handle handle = ronda::allreduce_async(View("x", array, stream), options);
      EXPECT_EQ(handle.found_inf(), overflows);
    }
  });
}

}  // namespace
