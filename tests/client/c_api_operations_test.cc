// SPDX-License-Identifier: Apache-2.0

// Tests every operation of the C ABI, on three ranks that are threads.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "client/ronda.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

void Call(void* context) { (*static_cast<const std::function<void()>*>(context))(); }

void RunRanks(const std::function<void()>& body) {
  EXPECT_EQ(ronda_run_threads(nullptr, kRanks, Call, const_cast<std::function<void()>*>(&body)), RONDA_OK)
      << ronda_last_error();
}

// Sets the field `tensor` of an operation's arguments. The tensor is float32 with the given `shape`, which must outlive
// the arguments.
template <typename Args>
Args WithTensor(Args args, const char* name, const std::vector<int64_t>& shape) {
  args.tensor = {name, RONDA_FLOAT32, static_cast<int>(shape.size()), shape.data()};
  return args;
}

// `handle` is a reference, because the call that returns `submitted` also writes the handle, and C++ may evaluate
// `handle` before it makes that call.
void ExpectDone(ronda_status submitted, const ronda_handle& handle) {
  ASSERT_EQ(submitted, RONDA_OK) << ronda_last_error();
  EXPECT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
}

struct Result {
  std::vector<float> values;
  std::vector<int64_t> rows_per_member;
};

// Returns the output, which has `row` elements per row. Releases the handle.
Result TakeOutput(ronda_handle handle, int64_t row = 1) {
  const void* data = nullptr;
  int64_t rows = 0;
  const int64_t* rows_per_member = nullptr;
  int members = 0;
  EXPECT_EQ(ronda_output(handle, &data, &rows, &rows_per_member, &members), RONDA_OK) << ronda_last_error();
  const float* const values = static_cast<const float*>(data);
  Result result{{values, values + rows * row}, {rows_per_member, rows_per_member + members}};
  EXPECT_EQ(ronda_release(handle), RONDA_OK);
  return result;
}

TEST(COperationsTest, AllreduceReduceAndReducescatter) {
  RunRanks([] {
    const std::vector<int64_t> shape = {4};
    const std::vector<float> input(4, static_cast<float>(ronda_rank()));
    std::vector<float> output(4, -1);
    ronda_handle handle = 0;
    auto allreduce = WithTensor<ronda_allreduce_args>(RONDA_ALLREDUCE_ARGS_INIT, "a", shape);
    allreduce.input = input.data();
    allreduce.output = output.data();
    ExpectDone(ronda_allreduce_async(&allreduce, &handle), handle);
    ronda_release(handle);
    EXPECT_THAT(output, Each(3));
    auto reduce = WithTensor<ronda_reduce_args>(RONDA_REDUCE_ARGS_INIT, "r", shape);
    std::vector<float> on_root(4, -1);
    reduce.input = input.data();
    reduce.output = on_root.data();
    reduce.root = 2;
    reduce.op = RONDA_MAX;
    ExpectDone(ronda_reduce_async(&reduce, &handle), handle);
    ronda_release(handle);
    EXPECT_THAT(on_root, Each(ronda_rank() == 2 ? 2 : -1));
    auto scatter = WithTensor<ronda_reducescatter_args>(RONDA_REDUCESCATTER_ARGS_INIT, "rs", shape);
    scatter.input = input.data();
    scatter.op = RONDA_AVERAGE;
    ExpectDone(ronda_reducescatter_async(&scatter, &handle), handle);
    const Result part = TakeOutput(handle);
    EXPECT_EQ(part.values.size(), ronda_rank() == 0 ? 2u : 1u);
    EXPECT_THAT(part.values, Each(1));
    EXPECT_TRUE(part.rows_per_member.empty());
  });
}

TEST(COperationsTest, GatherScatterAndAlltoall) {
  RunRanks([] {
    const std::vector<int64_t> shape = {kRanks, 2};
    const std::vector<float> input(2 * kRanks, static_cast<float>(ronda_rank()));
    ronda_handle handle = 0;
    auto gather = WithTensor<ronda_gather_args>(RONDA_GATHER_ARGS_INIT, "g", shape);
    gather.input = input.data();
    gather.root = 1;
    ExpectDone(ronda_gather_async(&gather, &handle), handle);
    const Result gathered = TakeOutput(handle, 2);
    EXPECT_EQ(gathered.values.size(), ronda_rank() == 1 ? 18u : 0u);
    auto scatter = WithTensor<ronda_scatter_args>(RONDA_SCATTER_ARGS_INIT, "s", shape);
    const int64_t splits[kRanks] = {0, 1, 2};
    scatter.input = input.data();
    scatter.root = 1;
    scatter.splits = splits;
    scatter.split_count = kRanks;
    ExpectDone(ronda_scatter_async(&scatter, &handle), handle);
    const Result scattered = TakeOutput(handle, 2);
    EXPECT_EQ(scattered.values.size(), 2u * ronda_rank());
    EXPECT_THAT(scattered.values, Each(1));
    auto alltoall = WithTensor<ronda_alltoall_args>(RONDA_ALLTOALL_ARGS_INIT, "t", shape);
    alltoall.input = input.data();
    ExpectDone(ronda_alltoall_async(&alltoall, &handle), handle);
    const Result exchanged = TakeOutput(handle, 2);
    EXPECT_THAT(exchanged.values, ElementsAre(0, 0, 1, 1, 2, 2));
    EXPECT_THAT(exchanged.rows_per_member, ElementsAre(1, 1, 1));
  });
}

TEST(COperationsTest, SendAndReceiveAndBroadcast) {
  RunRanks([] {
    const std::vector<int64_t> shape = {1};
    float value = static_cast<float>(ronda_rank());
    ronda_handle handle = 0;
    if (ronda_rank() == 0) {
      auto send = WithTensor<ronda_send_args>(RONDA_SEND_ARGS_INIT, nullptr, shape);
      send.input = &value;
      send.to = 2;
      send.tag = 5;
      ExpectDone(ronda_send_async(&send, &handle), handle);
      ronda_release(handle);
    } else if (ronda_rank() == 2) {
      auto recv = WithTensor<ronda_recv_args>(RONDA_RECV_ARGS_INIT, nullptr, shape);
      recv.output = &value;
      recv.from = 0;
      recv.tag = 5;
      ExpectDone(ronda_recv_async(&recv, &handle), handle);
      ronda_release(handle);
      EXPECT_EQ(value, 0);
    }
    auto broadcast = WithTensor<ronda_broadcast_args>(RONDA_BROADCAST_ARGS_INIT, "b", shape);
    broadcast.data = &value;
    broadcast.root = 1;
    ExpectDone(ronda_broadcast_async(&broadcast, &handle), handle);
    ronda_release(handle);
    EXPECT_EQ(value, 1);
  });
}

TEST(COperationsTest, ObjectsAndSparseTensors) {
  RunRanks([] {
    const std::string mine(static_cast<size_t>(ronda_rank()), 'x');
    ronda_object_args object = RONDA_OBJECT_ARGS_INIT;
    object.name = "o";
    object.data = mine.data();
    object.size = mine.size();
    object.root = 2;
    ronda_handle handle = 0;
    const void* data = nullptr;
    int64_t rows = 0;
    ExpectDone(ronda_broadcast_object_async(&object, &handle), handle);
    ASSERT_EQ(ronda_output(handle, &data, &rows, nullptr, nullptr), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(std::string(static_cast<const char*>(data), static_cast<size_t>(rows)), "xx");
    ronda_release(handle);
    ExpectDone(ronda_allgather_object_async(&object, &handle), handle);
    const int64_t* sizes = nullptr;
    int members = 0;
    ASSERT_EQ(ronda_output(handle, &data, &rows, &sizes, &members), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(rows, 3);
    EXPECT_THAT(std::vector<int64_t>(sizes, sizes + members), ElementsAre(0, 1, 2));
    ronda_release(handle);

    const std::vector<int64_t> shape = {1, 2}, indices = {ronda_rank()};
    const float values[2] = {3, 6};
    auto sparse = WithTensor<ronda_sparse_allreduce_args>(RONDA_SPARSE_ALLREDUCE_ARGS_INIT, "s", shape);
    sparse.values = values;
    sparse.indices = indices.data();
    sparse.op = RONDA_AVERAGE;
    ronda_handle indices_handle = 0, values_handle = 0;
    ASSERT_EQ(ronda_sparse_allreduce_async(&sparse, &indices_handle, &values_handle), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_synchronize(indices_handle), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_synchronize(values_handle), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(TakeOutput(values_handle, 2).values, ElementsAre(1, 2, 1, 2, 1, 2));
    ronda_release(indices_handle);
  });
}

TEST(COperationsTest, GroupsGiveAHandleForEachMember) {
  RunRanks([] {
    const std::vector<int64_t> shape = {3};
    std::vector<float> values[2] = {std::vector<float>(3, 1), std::vector<float>(3, 2)};
    ronda_handle handles[2] = {0, 0};
    ronda_allreduce_args allreduces[2];
    ronda_allgather_args allgathers[2];
    ronda_reducescatter_args reducescatters[2];
    for (int i = 0; i < 2; ++i) {
      const char* const name = i == 0 ? "a" : "b";
      allreduces[i] = WithTensor<ronda_allreduce_args>(RONDA_ALLREDUCE_ARGS_INIT, name, shape);
      allreduces[i].input = allreduces[i].output = values[i].data();
      allgathers[i] = WithTensor<ronda_allgather_args>(RONDA_ALLGATHER_ARGS_INIT, name, shape);
      allgathers[i].input = values[i].data();
      reducescatters[i] = WithTensor<ronda_reducescatter_args>(RONDA_REDUCESCATTER_ARGS_INIT, name, shape);
      reducescatters[i].input = values[i].data();
    }
    ASSERT_EQ(ronda_grouped_allreduce_async(allreduces, 2, "g", handles), RONDA_OK) << ronda_last_error();
    for (const ronda_handle handle : handles) {
      EXPECT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
      ronda_release(handle);
    }
    EXPECT_THAT(values[1], Each(6));
    ASSERT_EQ(ronda_grouped_allgather_async(allgathers, 2, "g", handles), RONDA_OK) << ronda_last_error();
    for (const ronda_handle handle : handles) {
      EXPECT_EQ(ronda_synchronize(handle), RONDA_OK);
      EXPECT_EQ(TakeOutput(handle).values.size(), 9u);
    }
    ASSERT_EQ(ronda_grouped_reducescatter_async(reducescatters, 2, "g", handles), RONDA_OK) << ronda_last_error();
    for (const ronda_handle handle : handles) EXPECT_EQ(ronda_synchronize(handle), RONDA_OK);
    EXPECT_THAT(TakeOutput(handles[0]).values, ElementsAre(9));
    EXPECT_THAT(TakeOutput(handles[1]).values, ElementsAre(18));
    EXPECT_EQ(ronda_grouped_allreduce_async(nullptr, 0, "g", nullptr), RONDA_OK) << "nothing to do";
    EXPECT_EQ(ronda_grouped_allreduce_async(allreduces, 2, "g", nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST(COperationsTest, ProcessSetsAreListedAndAsked) {
  RunRanks([] {
    const int ranks[2] = {0, 2};
    ronda_process_set id = 0;
    ASSERT_EQ(ronda_add_process_set(ranks, 2, &id), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(id, 1u);
    EXPECT_EQ(ronda_process_set_size(id), 2);
    EXPECT_EQ(ronda_process_set_rank(id), ronda_rank() == 1 ? -1 : ronda_rank() / 2);
    int members[2] = {-1, -1};
    EXPECT_EQ(ronda_process_set_ranks(id, members), RONDA_OK);
    EXPECT_THAT(members, ElementsAre(0, 2));
    ronda_process_set ids[1] = {9};
    int count = 0;
    EXPECT_EQ(ronda_process_set_ids(ids, 1, &count), RONDA_OK);
    EXPECT_EQ(count, 2) << "more than there is room for";
    EXPECT_EQ(ids[0], 0u);
    EXPECT_EQ(ronda_barrier(id), ronda_rank() == 1 ? RONDA_ERROR_INVALID_ARGUMENT : RONDA_OK);
    EXPECT_EQ(ronda_monitored_barrier(0, 30), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_remove_process_set(id), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_process_set_size(id), -1);
    EXPECT_EQ(ronda_process_set_ranks(id, members), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("removed"));
  });
}

TEST(COperationsTest, TheLastRankToJoinIsTold) {
  RunRanks([] {
    int last_rank = -1;
    ASSERT_EQ(ronda_join(0, RONDA_ABSENT_NOT_COUNTED, &last_rank), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(last_rank, AllOf(::testing::Ge(0), ::testing::Lt(kRanks)));
    EXPECT_EQ(ronda_join(0, RONDA_ABSENT_NOT_COUNTED, nullptr), RONDA_OK) << "nobody need know";
    ronda_handle handle = 0;
    int last_async = -1;
    ExpectDone(ronda_join_async(0, RONDA_ABSENT_COUNTED_AS_ZEROS, &handle), handle);
    EXPECT_EQ(ronda_last_rank(handle, &last_async), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(last_async, AllOf(::testing::Ge(0), ::testing::Lt(kRanks)));
    ronda_release(handle);
  });
}

TEST(COperationsTest, OverflowAndCompletionAreReported) {
  RunRanks([] {
    const std::vector<int64_t> shape = {1};
    float value = ronda_rank() == 2 ? INFINITY : 1;
    auto args = WithTensor<ronda_allreduce_args>(RONDA_ALLREDUCE_ARGS_INIT, "a", shape);
    args.input = args.output = &value;
    args.detect_overflow = 1;
    ronda_handle handle = 0;
    ASSERT_EQ(ronda_allreduce_async(&args, &handle), RONDA_OK) << ronda_last_error();
    // Checks that the operation completes before the handle is released, and that the callback has run by the end of
    // the job.
    static thread_local int calls;
    calls = 0;
    const auto count = [](void* context, ronda_status status, const char* message) {
      EXPECT_EQ(status, RONDA_OK);
      EXPECT_STREQ(message, "");
      ++*static_cast<int*>(context);
    };
    EXPECT_EQ(ronda_on_completion(handle, count, &calls), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_on_completion(handle, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_synchronize(handle), RONDA_OK);
    int found = -1;
    EXPECT_EQ(ronda_found_inf(handle, &found), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(found, 1);
    EXPECT_EQ(ronda_found_inf(handle, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    ronda_release(handle);
  });
}

// A call of rank 0 with invalid arguments, and the texts that the error must contain. The tensor "t" has 6 rows.
struct WrongCall {
  const char* what;
  std::function<ronda_status(ronda_handle*)> call;
  std::vector<std::string> parts;
};

template <typename Args>
WrongCall Wrong(const char* what, ronda_status (*function)(const Args*, ronda_handle*), Args args,
                const std::function<void(Args*)>& change, std::vector<std::string> parts) {
  static const std::vector<int64_t> shape = {6};
  static float buffer[6];
  args = WithTensor<Args>(args, "t", shape);
  if constexpr (requires { args.input; }) args.input = buffer;
  if constexpr (requires { args.output; }) args.output = buffer;
  if constexpr (requires { args.data; }) args.data = buffer;
  change(&args);
  return {what, [=](ronda_handle* handle) { return function(&args, handle); }, std::move(parts)};
}

std::vector<WrongCall> WrongCalls() {
  using R = ronda_reduce_args;
  using RS = ronda_reducescatter_args;
  using S = ronda_scatter_args;
  using T = ronda_alltoall_args;
  const ronda_reduce_args reduce = RONDA_REDUCE_ARGS_INIT;
  const ronda_reducescatter_args reducescatter = RONDA_REDUCESCATTER_ARGS_INIT;
  const ronda_scatter_args scatter = RONDA_SCATTER_ARGS_INIT;
  const ronda_alltoall_args alltoall = RONDA_ALLTOALL_ARGS_INIT;
  const ronda_gather_args gather = RONDA_GATHER_ARGS_INIT;
  const ronda_allreduce_args allreduce = RONDA_ALLREDUCE_ARGS_INIT;
  const ronda_broadcast_args broadcast = RONDA_BROADCAST_ARGS_INIT;
  const ronda_send_args send = RONDA_SEND_ARGS_INIT;
  const ronda_recv_args recv = RONDA_RECV_ARGS_INIT;
  return {
      Wrong<R>("root", ronda_reduce_async, reduce, [](R* a) { a->root = 3; }, {"reduce", "'t'", "root 3"}),
      Wrong<R>("no output", ronda_reduce_async, reduce, [](R* a) { a->output = nullptr; }, {"'t'", "output is null"}),
      Wrong<R>("Adasum", ronda_reduce_async, reduce, [](R* a) { a->op = RONDA_ADASUM; }, {"'t'", "Adasum"}),
      Wrong<R>("size", ronda_reduce_async, reduce, [](R* a) { a->struct_size = 8; }, {"RONDA_REDUCE_ARGS_INIT"}),
      Wrong<RS>("scalar", ronda_reducescatter_async, reducescatter, [](RS* a) { a->tensor.ndim = 0; },
                {"reducescatter", "'t'", "scalar"}),
      Wrong<RS>("bits of floats", ronda_reducescatter_async, reducescatter, [](RS* a) { a->op = RONDA_BXOR; },
                {"'t'", "bxor", "float32"}),
      Wrong<S>("splits", ronda_scatter_async, scatter, [](S* a) { a->split_count = 2; }, {"scatter", "'t'", "split"}),
      Wrong<S>("root", ronda_scatter_async, scatter, [](S* a) { a->root = -1; }, {"'t'", "root -1"}),
      Wrong<T>("rows", ronda_alltoall_async, alltoall, [](T* a) { a->input = nullptr; }, {"'t'", "input is null"}),
      Wrong<ronda_gather_args>("root", ronda_gather_async, gather, [](ronda_gather_args* a) { a->root = 7; },
                               {"gather", "'t'", "root 7"}),
      Wrong<ronda_allreduce_args>("set", ronda_allreduce_async, allreduce,
                                  [](ronda_allreduce_args* a) { a->call.process_set = 4; }, {"'t'", "process set 4"}),
      Wrong<ronda_allreduce_args>("overlap", ronda_allreduce_async, allreduce,
                                  [](ronda_allreduce_args* a) { a->output = static_cast<float*>(a->output) + 1; },
                                  {"'t'", "overlap"}),
      Wrong<ronda_allreduce_args>("bool", ronda_allreduce_async, allreduce,
                                  [](ronda_allreduce_args* a) {
                                    a->tensor.dtype = RONDA_BOOL;
                                    a->op = RONDA_AVERAGE;
                                  },
                                  {"'t'", "bool"}),
      Wrong<ronda_allreduce_args>("scale", ronda_allreduce_async, allreduce,
                                  [](ronda_allreduce_args* a) { a->prescale = NAN; }, {"'t'", "finite"}),
      Wrong<ronda_broadcast_args>("no buffer", ronda_broadcast_async, broadcast,
                                  [](ronda_broadcast_args* a) { a->data = nullptr; }, {"broadcast", "'t'", "null"}),
      Wrong<ronda_send_args>("itself", ronda_send_async, send, [](ronda_send_args* a) { a->to = 0; }, {"send/recv"}),
      Wrong<ronda_recv_args>("nobody", ronda_recv_async, recv, [](ronda_recv_args* a) { a->from = 3; },
                             {"send/recv", "3"}),
  };
}

TEST(COperationsTest, WrongArgumentsOfEachOperationAreNamed) {
  RunRanks([] {
    if (ronda_rank() != 0) return;
    for (const WrongCall& wrong : WrongCalls()) {
      SCOPED_TRACE(wrong.what);
      ronda_handle handle = 0;
      EXPECT_EQ(wrong.call(&handle), RONDA_ERROR_INVALID_ARGUMENT);
      for (const std::string& part : wrong.parts) EXPECT_THAT(ronda_last_error(), HasSubstr(part));
      EXPECT_EQ(handle, 0);
      EXPECT_EQ(wrong.call(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    }
  });
}

}  // namespace
