// SPDX-License-Identifier: Apache-2.0

// Tests lanes in the C ABI. The ranks are threads, and the GPUs and NCCL are fake.
#include <cstdint>
#include <cstdlib>
#include <cstring>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr std::int64_t kCount = 100;

class LanesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("RONDA_CUDA_PLUGIN", ronda::testing::kFakeCudaPath, 1);
    setenv("RONDA_NCCL_LIBRARY", ronda::testing::kFakeNcclLibraryPath, 1);
    setenv("RONDA_DEVICE_BACKEND", "nccl", 1);
  }
};

float Own() { return static_cast<float>(ronda::rank() + 1); }

template <typename T>
void Open(const FakeGpuArray<T>& array) {
  int open = -1;
  ASSERT_EQ(ronda_lane_open(0, array.data(), &open), RONDA_OK) << ronda_last_error();
  ASSERT_EQ(open, 1);
}

template <typename Args>
void SetTensor(Args& args, const std::int64_t* shape, int ndim, const FakeGpuStream& stream) {
  args.tensor.ndim = ndim;
  args.tensor.shape = shape;
  args.call.memory = RONDA_MEMORY_CUDA;
  args.call.stream = stream.handle();
}

// Submits an unnamed in-place allreduce of `array`. Makes the stream wait for the result.
void Reduce(const FakeGpuArray<float>& array, const FakeGpuStream& stream, ronda_reduce_op op) {
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  SetTensor(args, &kCount, 1, stream);
  args.input = args.output = array.data();
  args.op = op;
  ronda_handle handle = 0;
  ASSERT_EQ(ronda_allreduce_async(&args, &handle), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(ronda_synchronize_on_stream(handle, stream.handle()), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(ronda_release(handle), RONDA_OK);
}

std::uint64_t TensorsOfEngine() {
  ronda_statistics counts = RONDA_STATISTICS_INIT;
  EXPECT_EQ(ronda_get_statistics(&counts), RONDA_OK);
  return counts.tensors;
}

TEST_F(LanesTest, OperationsThatNcclLacksKeepTheirPlaceAmongTheCalls) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(kCount, Own()));
    Open(array);
    const std::uint64_t before = TensorsOfEngine();
    float expected = Own();
    for (int i = 0; i < 5; ++i) {
      Reduce(array, stream, RONDA_SUM);  // over the lane
      expected = i == 0 ? 3 : 2 * expected;
      stream.Enqueue([data = array.data(), own = Own()] {
        for (std::int64_t j = 0; j < kCount; ++j) data[j] += own;
      });
      Reduce(array, stream, RONDA_MAX);  // by the engine
      expected += kRanks;
    }
    EXPECT_THAT(array.Get(), Each(expected));
    EXPECT_EQ(TensorsOfEngine(), before + 5);
  });
}

float FromBfloat16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

TEST_F(LanesTest, AnAverageOfShortFloatsIsNotBiased) {
  ronda::run_threads(3, [] {
    const FakeGpuStream stream(ronda::rank());
    std::vector<std::uint16_t> values;  // the same on all ranks: bfloat16 from 1 to 2
    for (int bits = 0x3f80; bits < 0x4000; ++bits) values.push_back(static_cast<std::uint16_t>(bits));
    const FakeGpuArray<std::uint16_t> array(stream, values);
    Open(array);
    const auto count = static_cast<std::int64_t>(values.size());
    ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
    SetTensor(args, &count, 1, stream);
    args.tensor.dtype = RONDA_BFLOAT16;
    args.input = args.output = array.data();
    args.op = RONDA_AVERAGE;
    EXPECT_EQ(ronda_allreduce(&args), RONDA_OK) << ronda_last_error();
    const std::vector<std::uint16_t> averages = array.Get();
    double error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) error += FromBfloat16(averages[i]) / FromBfloat16(values[i]) - 1;
    EXPECT_NEAR(error / static_cast<double>(values.size()), 0, 2e-4) << "1/3 in bfloat16 is 2e-3 too large";
  });
}

TEST_F(LanesTest, EngineAndLaneKeepTheirOrderWithoutWaitsOfTheStream) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(kCount, Own()));
    Open(array);
    ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
    SetTensor(args, &kCount, 1, stream);
    args.input = args.output = array.data();
    std::vector<ronda_handle> handles;
    for (const ronda_reduce_op op : {RONDA_SUM, RONDA_MAX, RONDA_SUM, RONDA_MIN, RONDA_SUM}) {
      args.op = op;
      ASSERT_EQ(ronda_allreduce_async(&args, &handles.emplace_back()), RONDA_OK) << ronda_last_error();
    }
    EXPECT_EQ(ronda_synchronize_all(handles.data(), handles.size()), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(array.Get(), Each(4 * (1 + 2)));
    EXPECT_EQ(ronda_release_all(handles.data(), handles.size()), RONDA_OK);
  });
}

TEST_F(LanesTest, RowsGoToTheCallersMemory) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(kCount, Own())), all(stream, kRanks * kCount);
    Open(array);
    ronda_allgather_args gather = RONDA_ALLGATHER_ARGS_INIT;
    SetTensor(gather, &kCount, 1, stream);
    gather.input = array.data();
    gather.output = all.data();
    gather.output_bytes = all.size() * sizeof(float);
    ronda_handle handle = 0;
    ASSERT_EQ(ronda_allgather_async(&gather, &handle), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
    const void* data = nullptr;
    const std::int64_t* rows_per_member = nullptr;
    std::int64_t rows = 0;
    int members = 0;
    ASSERT_EQ(ronda_output(handle, &data, &rows, &rows_per_member, &members), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(data, all.data());
    EXPECT_EQ(rows, kRanks * kCount);
    EXPECT_EQ(std::vector<std::int64_t>(rows_per_member, rows_per_member + members),
              (std::vector<std::int64_t>{kCount, kCount}));
    const std::vector<float> gathered = all.Get();
    EXPECT_EQ(gathered.front(), 1);
    EXPECT_EQ(gathered.back(), 2);
    EXPECT_EQ(ronda_release(handle), RONDA_OK);
  });
}

TEST_F(LanesTest, OtherTensorsAreNotTheLanes) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(kCount, Own()));
    Open(array);
    const std::uint64_t before = TensorsOfEngine();
    ronda::allreduce(ronda::cuda_tensor("named", array.data(), {kCount}, stream.handle()), {ronda::Op::Sum});
    EXPECT_THAT(array.Get(), Each(3));
    ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
    float value = Own();
    args.input = args.output = &value;
    EXPECT_EQ(ronda_allreduce(&args), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(value, 3);
    EXPECT_EQ(TensorsOfEngine(), before + 2);
  });
}

TEST_F(LanesTest, AClosedLaneLeavesTheOperationsToTheEngine) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(kCount, Own()));
    Open(array);
    Open(array);  // it is open
    Reduce(array, stream, RONDA_SUM);
    EXPECT_EQ(ronda_lane_close(0), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_lane_close(0), RONDA_OK) << "it is closed";
    const std::uint64_t before = TensorsOfEngine();
    Reduce(array, stream, RONDA_SUM);
    EXPECT_THAT(array.Get(), Each(6));
    EXPECT_EQ(TensorsOfEngine(), before + 1);
  });
}

// Returns the arguments of an alltoall.
ronda_lane_exchange_args ExchangeArgs(const std::vector<ronda_lane_part>& sends,
                                      const std::vector<ronda_lane_part>& receives, const FakeGpuStream& stream) {
  ronda_lane_exchange_args args = RONDA_LANE_EXCHANGE_ARGS_INIT;
  args.sends = sends.data();
  args.receives = receives.data();
  args.part_count = static_cast<int>(sends.size());
  args.call.memory = RONDA_MEMORY_CUDA;
  args.call.stream = stream.handle();
  return args;
}

TEST_F(LanesTest, ExchangesAndReducesDoNotReachTheEngine) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(kCount, Own())), room(stream, kCount);
    Open(array);
    const std::uint64_t before = TensorsOfEngine();
    // Rank 0 sends 30 elements to each rank, and rank 1 sends 50 to each rank.
    const std::int64_t own = ronda::rank() == 0 ? 30 : 50;
    const std::vector<ronda_lane_part> sends = {{array.data(), own}, {array.data() + own, own}};
    const std::vector<ronda_lane_part> receives = {{room.data(), 30}, {room.data() + 30, 50}};
    ronda_lane_exchange_args args = ExchangeArgs(sends, receives, stream);
    ronda_handle handle = 0;
    ASSERT_EQ(ronda_lane_exchange_async(&args, &handle), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_synchronize_on_stream(handle, stream.handle()), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_release(handle), RONDA_OK);
    std::vector<float> values = room.Get();
    EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 30), Each(1));
    EXPECT_THAT(std::vector<float>(values.begin() + 30, values.begin() + 80), Each(2));
    ronda_reduce_args reduce = RONDA_REDUCE_ARGS_INIT;
    SetTensor(reduce, &kCount, 1, stream);
    reduce.input = reduce.output = array.data();
    reduce.root = 1;
    EXPECT_EQ(ronda_reduce(&reduce), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(array.Get(), Each(ronda::rank() == 1 ? 3 : 1));
    EXPECT_EQ(TensorsOfEngine(), before);
  });
}

TEST_F(LanesTest, WrongExchangesAreRefused) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, std::vector<float>(kCount, Own())), room(stream, kCount);
    const std::vector<ronda_lane_part> sends(2, {array.data(), 2});
    const std::vector<ronda_lane_part> receives = {{room.data(), 2}, {room.data() + 2, 2}};
    const ronda_lane_exchange_args right = ExchangeArgs(sends, receives, stream);
    const auto error = [](const ronda_lane_exchange_args& args) {
      ronda_handle handle = 0;
      EXPECT_EQ(ronda_lane_exchange_async(&args, &handle), RONDA_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(handle, 0);
      return std::string(ronda_last_error());
    };
    EXPECT_THAT(error(right), HasSubstr("process set 0 has no open lane: call ronda_lane_open() first"));
    Open(array);
    ronda_lane_exchange_args wrong = right;
    wrong.op = static_cast<ronda_lane_exchange>(3);
    EXPECT_THAT(error(wrong), HasSubstr("op 3 is not one of ronda_lane_exchange, 0 to 2"));
    wrong = right;
    wrong.dtype = static_cast<ronda_dtype>(99);
    EXPECT_THAT(error(wrong), HasSubstr("dtype 99"));
    wrong = right;
    wrong.call = RONDA_CALL_OPTIONS_INIT;
    EXPECT_THAT(error(wrong), HasSubstr("call.memory is not RONDA_MEMORY_CUDA"));
    wrong = right;
    wrong.receives = nullptr;
    EXPECT_THAT(error(wrong), HasSubstr("part_count is 2: pass that many parts in receives"));
    const std::vector<ronda_lane_part> negative(2, {array.data(), -2});
    EXPECT_THAT(error(ExchangeArgs(negative, receives, stream)), HasSubstr("sends[0].count is -2"));
    EXPECT_THAT(error(ExchangeArgs({}, {}, stream)), HasSubstr("sends has 0 parts for 2 ranks"));
    EXPECT_EQ(ronda_lane_exchange_async(&right, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_lane_exchange_async(nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    ronda_handle handle = 0;
    EXPECT_EQ(ronda_lane_exchange_async(nullptr, &handle), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_lane_exchange_args is NULL"));
    ASSERT_EQ(ronda_lane_exchange_async(&right, &handle), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_release(handle), RONDA_OK);
  });
}

TEST_F(LanesTest, RanksKnowWhichReductionsTheLaneCarries) {
  ronda::run_threads(3, [] {
    const auto reduces = [](ronda_dtype dtype, ronda_reduce_op op, double factor) {
      int answer = -1;
      EXPECT_EQ(ronda_lane_reduces(0, dtype, op, factor, &answer), RONDA_OK) << ronda_last_error();
      return answer;
    };
    EXPECT_EQ(reduces(RONDA_FLOAT32, RONDA_SUM, 1), 0) << "the lane is not open";
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, kCount);
    Open(array);
    EXPECT_EQ(reduces(RONDA_FLOAT32, RONDA_SUM, 1), 1);
    EXPECT_EQ(reduces(RONDA_FLOAT32, RONDA_MAX, 1), 0);
    EXPECT_EQ(reduces(RONDA_INT32, RONDA_MAX, 1), 1);
    EXPECT_EQ(reduces(RONDA_INT16, RONDA_SUM, 1), 0);
    EXPECT_EQ(reduces(RONDA_BFLOAT16, RONDA_AVERAGE, 1), 0);
    EXPECT_EQ(reduces(RONDA_FLOAT16, RONDA_SUM, 0.1), 0);
    EXPECT_EQ(reduces(RONDA_FLOAT16, RONDA_SUM, 0.5), 1);
    EXPECT_EQ(ronda_lane_reduces(0, RONDA_FLOAT32, RONDA_SUM, 1, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("reduces is NULL"));
  });
}

class LaneMemoryTest : public LanesTest {
 protected:
  void SetUp() override {
    LanesTest::SetUp();
    setenv("RONDA_LANE_MEMORY_MB", "1", 1);
  }
  void TearDown() override {
    unsetenv("RONDA_LANE_MEMORY_MB");
    EXPECT_EQ(ronda::testing::FakeGpuLeaks(), "");
  }
};

// Sums kCount floats at `data` over the lane, in place, after filling them with this rank's number.
void SumOwn(float* data, const FakeGpuStream& stream) {
  stream.Enqueue([data, own = Own()] {
    for (std::int64_t i = 0; i < kCount; ++i) data[i] = own;
  });
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  SetTensor(args, &kCount, 1, stream);
  args.input = args.output = data;
  EXPECT_EQ(ronda_allreduce(&args), RONDA_OK) << ronda_last_error();
}

// Returns the first number at `data`, as the stream sees it.
float FirstOf(const float* data, const FakeGpuStream& stream) {
  float first = 0;
  stream.Enqueue([data, &first] { first = *data; });
  stream.Synchronize();
  return first;
}

TEST_F(LaneMemoryTest, BlockStaysValidAfterItsLaneAndItsJob) {
  std::vector<void*> blocks(kRanks);
  ronda::run_threads(kRanks, [&] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, kCount);
    Open(array);
    std::size_t bytes = 0;
    EXPECT_EQ(ronda_lane_memory(0, &bytes), RONDA_OK);
    EXPECT_EQ(bytes, std::size_t{1} << 20);
    void*& block = blocks[static_cast<std::size_t>(ronda::rank())];
    ASSERT_EQ(ronda_lane_allocate(0, kCount * sizeof(float), stream.handle(), &block), RONDA_OK) << ronda_last_error();
    SumOwn(static_cast<float*>(block), stream);
    EXPECT_EQ(ronda_lane_close(0), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(FirstOf(static_cast<float*>(block), stream), 3);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const FakeGpuStream stream(rank);
    void* const block = blocks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(FirstOf(static_cast<float*>(block), stream), 3);
    EXPECT_EQ(ronda_lane_free(block, stream.handle()), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_lane_free(block, stream.handle()), RONDA_ERROR_INVALID_ARGUMENT) << "twice";
    EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_lane_free: no block"));
  }
}

TEST_F(LanesTest, GradientMemoryComesWithTheFirstOperation) {
  setenv("RONDA_GRADIENT_MEMORY_MB", "1", 1);
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, kCount);
    void* block = &block;
    EXPECT_EQ(ronda_gradient_allocate(1, stream.handle(), &block), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(block, nullptr);
    ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
    SetTensor(args, &kCount, 1, stream);
    args.input = args.output = array.data();
    EXPECT_EQ(ronda_allreduce(&args), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_gradient_allocate(kCount * sizeof(float), stream.handle(), &block), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_gradient_allocate(1, stream.handle(), nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    void* large = nullptr;
    EXPECT_EQ(ronda_gradient_allocate(std::size_t{1} << 20, stream.handle(), &large), RONDA_ERROR_OUT_OF_MEMORY);
    EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_gradient_allocate: no room"));
    EXPECT_EQ(ronda_lane_free(block, stream.handle()), RONDA_OK) << ronda_last_error();
  });
  unsetenv("RONDA_GRADIENT_MEMORY_MB");
}

TEST_F(LaneMemoryTest, AllocatorForPyTorchUsesTheLaneOfItsProcessSet) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, kCount);
    ronda_lane_allocate_function allocate = nullptr;
    ronda_lane_free_function release = nullptr;
    ASSERT_EQ(ronda_lane_allocator(0, &allocate, &release), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(allocate(1, ronda::rank(), stream.handle()), nullptr);
    EXPECT_THAT(ronda_last_error(), HasSubstr("has no open lane"));
    Open(array);
    void* const block = allocate(kCount * sizeof(float), ronda::rank(), stream.handle());
    ASSERT_NE(block, nullptr) << ronda_last_error();
    SumOwn(static_cast<float*>(block), stream);
    EXPECT_EQ(FirstOf(static_cast<float*>(block), stream), 3);
    EXPECT_EQ(allocate(1, ronda::rank() + 1, stream.handle()), nullptr);
    EXPECT_THAT(ronda_last_error(), HasSubstr("the tensor would be on cuda:"));
    EXPECT_EQ(allocate(std::size_t{1} << 20, ronda::rank(), stream.handle()), nullptr);
    EXPECT_THAT(ronda_last_error(), HasSubstr("no room for 1048576 bytes"));
    release(block, kCount * sizeof(float), ronda::rank(), stream.handle());
    void* const all = allocate(std::size_t{1} << 20, ronda::rank(), stream.handle());
    EXPECT_EQ(all, block);
    release(all, std::size_t{1} << 20, ronda::rank(), stream.handle());
  });
}

TEST_F(LaneMemoryTest, AllocatorLogsABlockThatItCannotFree) {
  ::testing::internal::CaptureStderr();
  ronda::run_threads(1, [] {
    ronda_lane_allocate_function allocate = nullptr;
    ronda_lane_free_function release = nullptr;
    ASSERT_EQ(ronda_lane_allocator(0, &allocate, &release), RONDA_OK) << ronda_last_error();
    int elsewhere = 0;
    release(&elsewhere, sizeof(elsewhere), 0, nullptr);
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("has not freed a block: ronda_lane_free: no block"));
}

TEST_F(LaneMemoryTest, WrongArgumentsAreRefused) {
  ronda::run_threads(kRanks, [] {
    const FakeGpuStream stream(ronda::rank());
    const FakeGpuArray<float> array(stream, kCount);
    std::size_t bytes = 1;
    EXPECT_EQ(ronda_lane_memory(0, &bytes), RONDA_OK);
    EXPECT_EQ(bytes, 0u) << "the lane is not open";
    void* block = nullptr;
    EXPECT_EQ(ronda_lane_allocate(0, 1, stream.handle(), &block), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_lane_allocate: process set 0 has no open lane"));
    Open(array);
    EXPECT_EQ(ronda_lane_memory(0, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_lane_allocate(0, 1, stream.handle(), nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("memory is NULL"));
    EXPECT_EQ(ronda_lane_allocate(0, std::size_t{2} << 20, stream.handle(), &block), RONDA_ERROR_OUT_OF_MEMORY);
    EXPECT_THAT(ronda_last_error(), HasSubstr("RONDA_LANE_MEMORY_MB"));
    ronda_lane_allocate_function allocate = nullptr;
    ronda_lane_free_function release = nullptr;
    EXPECT_EQ(ronda_lane_allocator(256, &allocate, &release), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("only the sets 0 to 255"));
    EXPECT_EQ(ronda_lane_allocator(0, nullptr, &release), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_lane_allocator(0, &allocate, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST_F(LanesTest, WrongArgumentsAreRefused) {
  ronda::run_threads(1, [] {
    int open = -1;
    EXPECT_EQ(ronda_lane_open(0, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("open is NULL"));
    EXPECT_EQ(ronda_lane_open(7, nullptr, &open), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("there is no process set 7"));
    EXPECT_EQ(ronda_lane_open(0, nullptr, &open), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(open, 0) << "one rank needs none";
    EXPECT_EQ(ronda_lane_refuse(0, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("message is NULL"));
    EXPECT_EQ(ronda_lane_refuse(0, "why"), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("has no open lane"));
  });
  EXPECT_EQ(ronda_lane_close(0), RONDA_ERROR_NOT_INITIALIZED);
}

}  // namespace
