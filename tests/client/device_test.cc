// SPDX-License-Identifier: Apache-2.0

// Tests tensors in GPU memory, as trainers submit them. The ranks are threads, and the GPUs and NCCL are fake.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
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

// Blocks a stream until the gate is opened.
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
  // The stream and the gate share the flag, because the stream reads it once more after Open(), when the gate may
  // already be destroyed.
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

TEST_F(DeviceTest, AWaitForTheDeviceMayGiveUp) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(100, Own()));
    Gate gate(stream);
    const ronda::Handle handle = ronda::allreduce_async(View("x", array, stream), {ronda::Op::Sum});
    int done = -1;
    EXPECT_EQ(ronda_synchronize_for(handle.id(), 0.01, &done), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(done, 0);
    gate.Open();
    EXPECT_EQ(ronda_synchronize_for(handle.id(), -1, &done), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(done, 1);
    EXPECT_THAT(array.Get(), Each(kSum));
  });
}

TEST_F(DeviceTest, AWaitForAStreamsTurnMayGiveUp) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(100, Own()));
    ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
    const std::int64_t shape[1] = {100};
    args.tensor = {"x", RONDA_FLOAT32, 1, shape};
    args.input = args.output = array.data();
    args.call.memory = RONDA_MEMORY_CUDA;
    args.call.stream = stream.handle();
    ronda_group group = nullptr;
    ASSERT_EQ(ronda_prepare_group(&args, 1, "group", &group), RONDA_OK) << ronda_last_error();
    for (const bool in_group : {false, true}) {
      ronda_handle handle = 0;
      const auto submit = [&] {
        return in_group ? ronda_group_ready(group, 0) : ronda_allreduce_async(&args, &handle);
      };
      const auto wait = [&](double timeout_s, int* done) {
        return in_group ? ronda_group_wait_on_stream_for(group, stream.handle(), timeout_s, done)
                        : ronda_synchronize_on_stream_for(handle, stream.handle(), timeout_s, done);
      };
      int done = -1;
      if (ronda::rank() == 0) {
        ASSERT_EQ(submit(), RONDA_OK) << ronda_last_error();
        EXPECT_EQ(wait(0.01, &done), RONDA_OK) << ronda_last_error();
        EXPECT_EQ(done, 0);
      }
      ronda::barrier();  // before this, the other rank has not submitted it
      if (ronda::rank() != 0) {
        ASSERT_EQ(submit(), RONDA_OK) << ronda_last_error();
      }
      EXPECT_EQ(wait(-1, &done), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(done, 1);
      EXPECT_EQ(wait(0, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
      if (!in_group) {
        EXPECT_EQ(ronda_release(handle), RONDA_OK) << ronda_last_error();
      }
    }
    EXPECT_THAT(array.Get(), Each(kSum * kRanks));
    EXPECT_EQ(ronda_group_release(group), RONDA_OK) << ronda_last_error();
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

TEST_F(DeviceTest, AdasumAveragesWhatAgreesAndAddsWhatDoesNot) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> equal(stream, std::vector<float>(100, 3));
    std::vector<float> own(kRanks, 0);
    own[static_cast<std::size_t>(ronda::rank())] = 2;
    const FakeGpuArray<float> orthogonal(stream, own);
    const std::vector<ronda::Handle> handles = ronda::grouped_allreduce_async(
        "gradients", {View("equal", equal, stream), View("orthogonal", orthogonal, stream)}, {ronda::Op::Adasum});
    for (const ronda::Handle& handle : handles) handle.synchronize_on(stream.handle());
    EXPECT_THAT(equal.Get(), Each(::testing::FloatNear(3, 1e-5f)));
    EXPECT_THAT(orthogonal.Get(), Each(2.0f));
  });
}

TEST_F(DeviceTest, AHandleThatIsKeptTellsHowItEndedOnTheDevice) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(100, Own()));
    const ronda::Handle handle = ronda::allreduce_async(View("x", array, stream), {ronda::Op::Sum});
    handle.synchronize_on(stream.handle());
    while (!handle.poll()) std::this_thread::yield();
    EXPECT_TRUE(handle.wait().ok());
  });
}

// The device fails after step() has returned.
TEST_F(DeviceTest, OptimizerReportsAFailureOnTheDeviceAfterAStep) {
  struct Descent {
    void step() { ++steps; }
    int steps = 0;
  };
  const auto train = [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> gradient(stream, std::vector<float>(4, Own()));
    Descent descent;
    ronda::DistributedOptimizerOptions options;
    options.call.deadline = ronda::CallOptions::Seconds(0.5);
    ronda::DistributedOptimizer optimizer(descent, {View("g", gradient, stream)}, options);
    optimizer.gradient_ready("g");
    optimizer.step();
    EXPECT_TRUE(optimizer.try_finish().ok());
    const Gate gate(stream);
    optimizer.gradient_ready("g");
    optimizer.step();
    EXPECT_EQ(descent.steps, 2);
    const ronda::Status end = optimizer.try_finish();
    EXPECT_EQ(end.code(), RONDA_ERROR_DEADLINE) << end.message();
    EXPECT_THAT(end.message(), AllOf(HasSubstr("tensor 'g'"), HasSubstr("cuda:")));
    EXPECT_EQ(optimizer.try_step().code(), RONDA_ERROR_DEADLINE);
    EXPECT_EQ(descent.steps, 2);
  };
  EXPECT_THROW(ronda::run_threads(kRanks, train), ronda::Error);
}

// Returns the elements of a result in GPU memory, read by work on `stream`.
template <class T>
std::vector<T> Read(ronda::OutputHandle<T>& handle, const FakeGpuStream& stream) {
  EXPECT_EQ(handle.memory(), RONDA_MEMORY_CUDA);
  handle.synchronize_on(stream.handle());
  std::vector<T> values(handle.count());
  const T* const data = handle.data();
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

TEST_F(DeviceTest, ResultsMayGoToTheCallersMemoryOfTheGpu) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, {Own(), 10 * Own()});
    const FakeGpuArray<float> all(stream, std::vector<float>(4, -1)), part(stream, std::vector<float>(1, -1));
    const ronda::Tensor view = View("x", array, stream);
    auto gathered = ronda::allgather_async<float>(view, {}, ronda::into(all.data(), 4));
    gathered.synchronize_on(stream.handle());
    EXPECT_EQ(gathered.data(), all.data());
    EXPECT_THAT(all.Get(), ElementsAre(1, 10, 2, 20));
    auto scattered = ronda::reducescatter_async<float>(view, {ronda::Op::Sum}, {}, ronda::into(part.data(), 1));
    scattered.synchronize_on(stream.handle());
    EXPECT_THAT(part.Get(), ElementsAre(ronda::rank() == 0 ? 3 : 30));
    std::vector<float> host(4);
    EXPECT_EQ(ronda::try_allgather_async<float>(view, {}, ronda::into(host)).status().code(),
              RONDA_ERROR_INVALID_ARGUMENT)
        << "the output is not where the input is";
  });
}

// The callback runs once the stream has been made to wait, although the device has not begun the operation. Rank 1
// submits the tensor later than rank 0.
TEST_F(DeviceTest, AStreamMayBeMadeToWaitWithoutBlockingTheHost) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, 100);
    array.Get();
    Gate gate(stream);
    array.Set(std::vector<float>(100, Own()));
    std::promise<ronda_status> ordered;
    // Rank 1 submits only after wait_on_async() has returned on rank 0, which proves that this call did not wait for
    // rank 1.
    if (ronda::rank() == 1) {
      float word = 0;
      ronda::recv(ronda::tensor("", &word), /*from=*/0);
    }
    ronda::Handle handle = ronda::allreduce_async(View("x", array, stream), {ronda::Op::Sum});
    handle.wait_on_async(stream.handle(), [&](const ronda::Status& status) { ordered.set_value(status.code()); });
    if (ronda::rank() == 0) {
      float word = 1;
      ronda::send(ronda::tensor("", &word), /*to=*/1);
    }
    EXPECT_EQ(ordered.get_future().get(), RONDA_OK);
    EXPECT_FALSE(handle.poll()) << "the device cannot have got there";
    handle = ronda::Handle();  // does not wait either: the gate is closed
    gate.Open();
    EXPECT_THAT(array.Get(), Each(kSum));
  });
}

TEST_F(DeviceTest, TheCallbackOfAStreamGetsTheErrorOfTheOperation) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(static_cast<std::size_t>(2 + ronda::rank()), Own()));
    std::promise<std::string> error;
    const ronda::Handle handle = ronda::allreduce_async(View("x", array, stream));
    handle.wait_on_async(stream.handle(), [&](const ronda::Status& status) { error.set_value(status.message()); });
    EXPECT_THAT(error.get_future().get(), HasSubstr("'x'"));
    EXPECT_EQ(ronda_synchronize_on_stream_async(handle.id(), stream.handle(), nullptr, nullptr),
              RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("callback is NULL"));
    std::promise<void> nothing;
    ronda::Handle().wait_on_async(stream.handle(), [&](const ronda::Status&) { nothing.set_value(); });
    nothing.get_future().get();
  });
}

// A program that averages gathered rows divides them by the number of ranks that took part, so it must be able to get
// this number.
TEST_F(DeviceTest, OnceAStreamWaitsItIsKnownHowManyRanksTookPart) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>{Own()});
    for (const int expected : {kRanks, 1}) {
      if (expected == kRanks || ronda::rank() == 0) {
        const Gate gate(stream);  // so the operation has not ended at the query
        auto rows = ronda::allgather_async<float>(View("x", array, stream));
        int ranks = 0;
        rows.synchronize_on(stream.handle());
        EXPECT_EQ(ronda_averaged_over(rows.id(), &ranks), RONDA_OK) << ronda_last_error();
        EXPECT_EQ(ranks, expected);
        EXPECT_EQ(ronda_averaged_over(rows.id(), nullptr), RONDA_ERROR_INVALID_ARGUMENT);
      }
      if (expected == 1) ronda_join(0, RONDA_ABSENT_NOT_COUNTED, nullptr);
    }
    const ronda::Handle reduced = ronda::allreduce_async(View("y", array, stream));
    int ranks = 0;
    EXPECT_EQ(ronda_averaged_over(reduced.id(), &ranks), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST_F(DeviceTest, OnceAStreamWaitsItIsKnownWhoHasSent) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>{Own()});
    const ronda::Tensor view = View("", array, stream);
    {
      const Gate gate(stream);  // so the operation has not ended at the query
      const ronda::Handle handle =
          ronda::rank() == 0 ? ronda::recv_async(view, RONDA_ANY_SOURCE) : ronda::send_async(view, 0);
      handle.synchronize_on(stream.handle());
      int sender = -1;
      EXPECT_EQ(ronda_source(handle.id(), &sender), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(sender, 1);
    }
    EXPECT_THAT(array.Get(), Each(2));
  });
}

// The stream reads the result only after the handle has been released and other operations with results of the same
// size have run.
TEST_F(DeviceTest, AHandleMayBeGivenBackWhileAStreamReadsTheResult) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank()), reader(ronda::rank());
    const FakeGpuArray<float> array(stream, {Own(), 10 * Own()});
    const ronda::Tensor view = View("x", array, stream);
    auto first = ronda::allgather_async<float>(view);
    first.synchronize_on(reader.handle());
    first.synchronize_on(stream.handle());  // which overwrites the operation's input
    const float* const data = first.data();
    std::vector<float> read(4);
    {
      Gate gate(reader);
      reader.Enqueue([&read, data] { std::copy_n(data, read.size(), read.begin()); });
      first.release_on(reader.handle());
      EXPECT_EQ(first.id(), 0);
      array.Set({-1, -1});
      for (int i = 0; i < 5; ++i) {
        auto other = ronda::allgather_async<float>(view);
        EXPECT_THAT(Read(other, stream), Each(-1));
      }
    }
    reader.Synchronize();
    EXPECT_THAT(read, ElementsAre(1, 10, 2, 20));
    // If the caller owns the output, as in an allreduce, try_release_on() only releases the handle.
    ronda::Handle reduced = ronda::allreduce_async(view);
    EXPECT_TRUE(reduced.try_release_on(stream.handle()).ok());
    EXPECT_TRUE(ronda::Handle().try_release_on(stream.handle()).ok());
    EXPECT_EQ(ronda_release_on_stream(77, stream.handle()), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST_F(DeviceTest, AStreamMayWaitForAPreparedGroup) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> x(stream, 3), y(stream, 5);
    ronda::PreparedGroup group =
        ronda::prepare_group("g", {View("x", x, stream), View("y", y, stream)}, {ronda::Op::Sum});
    for (int step = 1; step < 10; ++step) {
      const float own = Own() * static_cast<float>(step);
      x.Set(std::vector<float>(3, own));
      group.ready(0);
      y.Set(std::vector<float>(5, own));
      group.ready(1);
      group.synchronize_on(stream.handle());
      EXPECT_THAT(x.Get(), Each(kSum * static_cast<float>(step)));
      EXPECT_THAT(y.Get(), Each(kSum * static_cast<float>(step)));
    }
  });
}

// Each step computes the gradient on a different stream than the step before. The host announces the gradient before
// the stream has computed it.
TEST_F(DeviceTest, AMemberOfAGroupMayMoveToAnotherStream) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream first(ronda::rank()), second(ronda::rank());
    const FakeGpuArray<float> x(first, 3), y(second, 3);
    ronda::PreparedGroup group = ronda::prepare_group("g", {View("x", x, first)}, {ronda::Op::Sum});
    for (int step = 1; step < 10; ++step) {
      const FakeGpuStream& stream = step % 2 == 0 ? first : second;
      const FakeGpuArray<float>& gradient = step % 2 == 0 ? x : y;
      {
        const Gate gate(stream);
        gradient.Set(std::vector<float>(3, Own() * static_cast<float>(step)));
        group.ready_on(0, gradient.data(), stream.handle());
        group.synchronize_on(stream.handle());
      }
      EXPECT_THAT(gradient.Get(), Each(kSum * static_cast<float>(step)));
    }
  });
}

TEST_F(DeviceTest, AGroupsTensorsAreInLargeBucketsButForTheFirst) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const std::vector<float> half_a_mebibyte(1 << 17, Own());
    std::vector<std::unique_ptr<FakeGpuArray<float>>> arrays;
    std::vector<ronda::Tensor> tensors;
    for (int i = 0; i < 12; ++i) {
      arrays.push_back(std::make_unique<FakeGpuArray<float>>(stream, half_a_mebibyte));
      tensors.push_back(View("x" + std::to_string(i), *arrays.back(), stream));
    }
    ronda::PreparedGroup group = ronda::prepare_group("g", tensors, {ronda::Op::Sum});
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      group.ready(i);
      while (i == 1 && ronda::statistics().buckets_agreed < 1) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // small buckets would run meanwhile
    }
    group.synchronize();
    EXPECT_EQ(ronda::statistics().buckets_agreed, 2);
    for (const auto& array : arrays) EXPECT_THAT(array->Get(), Each(kSum));
  });
}

TEST_F(DeviceTest, GroupsAreCarriedOutAsAWholeOnTheDevice) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> x(stream, {Own(), 10 * Own()});
    const FakeGpuArray<float> y(stream, std::vector<float>{100 * Own()});
    const std::vector<ronda::Tensor> views = {View("x", x, stream), View("y", y, stream)};
    auto gathered = ronda::grouped_allgather_async<float>("gather", views);
    ASSERT_EQ(gathered.size(), 2u);
    EXPECT_THAT(Read(gathered[0], stream), ElementsAre(1, 10, 2, 20));
    EXPECT_THAT(Read(gathered[1], stream), ElementsAre(100, 200));
    auto scattered = ronda::grouped_reducescatter_async<float>("scatter", views, {ronda::Op::Sum});
    EXPECT_THAT(Read(scattered[0], stream), ElementsAre(ronda::rank() == 0 ? 3 : 30));
    EXPECT_EQ(Read(scattered[1], stream).size(), ronda::rank() == 0 ? 1u : 0u);
    ronda::grouped_allreduce("reduce", views, {ronda::Op::Sum});
    EXPECT_THAT(x.Get(), ElementsAre(3, 30));
    EXPECT_THAT(y.Get(), ElementsAre(300));
  });
}

TEST_F(DeviceTest, AGroupMayHaveTensorsOfBothMemories) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> device(stream, std::vector<float>(5, Own()));
    std::vector<float> host(4, Own());
    ronda::grouped_allreduce("both", {View("device", device, stream), ronda::tensor("host", host)}, {ronda::Op::Sum});
    EXPECT_THAT(device.Get(), Each(kSum));
    EXPECT_THAT(host, Each(kSum));
  });
}

TEST_F(DeviceTest, AMemberOfAGroupThatIsWrongFailsTheGroup) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> x(stream, std::vector<float>{Own()});
    const FakeGpuArray<float> y(stream, std::vector<float>(ronda::rank() == 0 ? 2 : 3, Own()));
    const std::vector<ronda::Tensor> views = {View("x", x, stream), View("y", y, stream)};
    EXPECT_EQ(ronda::try_grouped_allreduce("odd", views).code(), RONDA_ERROR_MISMATCH);
    EXPECT_EQ(ronda::try_grouped_allgather_async<double>("g", views).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(x.Get(), ElementsAre(Own()));
  });
}

TEST_F(DeviceTest, MessagesRootsAndSparseTensorsAreOfTheDevice) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, {Own(), 10 * Own()});
    const ronda::Tensor view = View("x", array, stream);
    if (ronda::rank() == 0) {
      ronda::send(view, /*to=*/1, /*tag=*/7);
    } else {
      ronda::recv(view, /*from=*/0, /*tag=*/7);
      EXPECT_THAT(array.Get(), ElementsAre(1, 10));
    }
    array.Set({Own(), 10 * Own()});
    ronda::reduce(view, array.data(), /*root=*/1, {ronda::Op::Sum});
    EXPECT_THAT(array.Get(), ronda::rank() == 1 ? ElementsAre(3, 30) : ElementsAre(1, 10));
    ronda::broadcast(view, /*root=*/1);
    EXPECT_THAT(array.Get(), ElementsAre(3, 30));
    const FakeGpuArray<std::int64_t> indices(stream, {std::int64_t{ronda::rank()}, 5});
    auto rows = ronda::sparse_allreduce_async<float>(view, indices.data(), ronda::Op::Sum);
    EXPECT_THAT(Read(rows.values, stream), ElementsAre(3, 30, 3, 30));
    EXPECT_THAT(Read(rows.indices, stream), ElementsAre(0, 5, 1, 5));
    EXPECT_EQ(ronda::try_sparse_allreduce_async<float>(view, indices.data()).status().code(),
              RONDA_ERROR_INVALID_ARGUMENT)
        << "an average";
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
