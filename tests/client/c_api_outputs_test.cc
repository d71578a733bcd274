// SPDX-License-Identifier: Apache-2.0

// Tests outputs in the caller's memory through the C ABI, on three ranks that are threads.
#include <array>
#include <cstddef>
#include <cstdint>
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
constexpr float kUntouched = -1;

void Call(void* context) { (*static_cast<const std::function<void()>*>(context))(); }

void RunRanks(const std::function<void()>& body) {
  EXPECT_EQ(ronda_run_threads(nullptr, kRanks, Call, const_cast<std::function<void()>*>(&body)), RONDA_OK)
      << ronda_last_error();
}

// An operation that writes its output to the caller's memory. The input has 3 rows of 2 elements. Each element is the
// rank number.
template <typename Args>
class Operation {
 public:
  using Function = ronda_status (*)(const Args*, ronda_handle*);

  Operation(Function function, Args args, const char* name) : function_(function), args_(args) {
    args_.tensor = {name, RONDA_FLOAT32, 2, shape_.data()};
    args_.input = input_.data();
  }

  Args& args() { return args_; }
  std::vector<float>& input() { return input_; }

  // Submits the operation with an output buffer of `elements` elements, and waits for it.
  ronda_status Run(std::vector<float>* output, size_t elements) {
    args_.output = output->data();
    args_.output_bytes = elements * sizeof(float);
    handle_ = 0;
    const ronda_status submitted = function_(&args_, &handle_);
    return submitted != RONDA_OK ? submitted : ronda_synchronize(handle_);
  }

  // Expects that the result of the last Run is at `output` and has `rows` rows. Releases the handle.
  void ExpectAt(const std::vector<float>& output, int64_t rows) {
    const void* data = nullptr;
    int64_t found = -1;
    EXPECT_EQ(ronda_output(handle_, &data, &found, nullptr, nullptr), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(data, output.data());
    EXPECT_EQ(found, rows);
    EXPECT_EQ(ronda_release(handle_), RONDA_OK);
  }

  void Release() { EXPECT_EQ(ronda_release(handle_), RONDA_OK); }
  ronda_handle handle() const { return handle_; }

 private:
  const Function function_;
  Args args_;
  const std::array<int64_t, 2> shape_ = {kRanks, 2};
  std::vector<float> input_ = std::vector<float>(2 * kRanks, static_cast<float>(ronda_rank()));
  ronda_handle handle_ = 0;
};

using Allgather = Operation<ronda_allgather_args>;
using Gather = Operation<ronda_gather_args>;
using Reducescatter = Operation<ronda_reducescatter_args>;
using Scatter = Operation<ronda_scatter_args>;
using Alltoall = Operation<ronda_alltoall_args>;

TEST(COutputsTest, ResultsGoStraightToTheCallersMemory) {
  RunRanks([] {
    std::vector<float> all(6 * kRanks, kUntouched), part(6, kUntouched);
    Allgather allgather(ronda_allgather_async, RONDA_ALLGATHER_ARGS_INIT, "allgather");
    ASSERT_EQ(allgather.Run(&all, all.size()), RONDA_OK) << ronda_last_error();
    allgather.ExpectAt(all, 3 * kRanks);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i / 6));
    Alltoall alltoall(ronda_alltoall_async, RONDA_ALLTOALL_ARGS_INIT, "alltoall");
    ASSERT_EQ(alltoall.Run(&part, 6), RONDA_OK) << ronda_last_error();
    alltoall.ExpectAt(part, kRanks);
    EXPECT_THAT(part, ElementsAre(0, 0, 1, 1, 2, 2));
    part.assign(6, kUntouched);
    Reducescatter reducescatter(ronda_reducescatter_async, RONDA_REDUCESCATTER_ARGS_INIT, "reducescatter");
    ASSERT_EQ(reducescatter.Run(&part, 6), RONDA_OK) << ronda_last_error();
    reducescatter.ExpectAt(part, 1);
    EXPECT_THAT(part, ElementsAre(3, 3, kUntouched, kUntouched, kUntouched, kUntouched)) << "more room than needed";
  });
}

TEST(COutputsTest, OnlyTheRootOfAGatherHasAnOutputAndEveryRankOfAScatter) {
  RunRanks([] {
    std::vector<float> all(6 * kRanks, kUntouched), part(2, kUntouched);
    Gather gather(ronda_gather_async, RONDA_GATHER_ARGS_INIT, "gather");
    gather.args().root = 1;
    // On ranks other than the root, the size of the output is ignored.
    ASSERT_EQ(gather.Run(&all, ronda_rank() == 1 ? all.size() : 1), RONDA_OK) << ronda_last_error();
    if (ronda_rank() == 1) {
      gather.ExpectAt(all, 3 * kRanks);
      EXPECT_EQ(all.back(), 2);
    } else {
      gather.Release();
      EXPECT_THAT(all, Each(kUntouched));
    }
    Scatter scatter(ronda_scatter_async, RONDA_SCATTER_ARGS_INIT, "scatter");
    scatter.args().root = 2;
    ASSERT_EQ(scatter.Run(&part, 2), RONDA_OK) << ronda_last_error();
    scatter.ExpectAt(part, 1);
    EXPECT_THAT(part, Each(2));
  });
}

// The output buffer of rank 1 is too small. Expects that only rank 1 gets an error, and that its buffer is unchanged.
template <typename Args>
void ExpectTooSmallOnRank1(ronda_status (*function)(const Args*, ronda_handle*), Args args, const char* name,
                           size_t elements) {
  SCOPED_TRACE(name);
  const bool is_short = ronda_rank() == 1;
  Operation<Args> operation(function, args, name);
  std::vector<float> output(elements, kUntouched);
  const ronda_status status = operation.Run(&output, is_short ? elements - 1 : elements);
  if (!is_short) {
    ASSERT_EQ(status, RONDA_OK) << ronda_last_error();
    EXPECT_NE(output.back(), kUntouched);
    operation.Release();
    return;
  }
  EXPECT_EQ(status, RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), AllOf(HasSubstr(name), HasSubstr("has " + std::to_string(4 * elements) + " bytes"),
                                        HasSubstr("output_bytes is " + std::to_string(4 * elements - 4))));
  EXPECT_THAT(output, Each(kUntouched));
  const void* data = nullptr;
  int64_t rows = 0;
  EXPECT_EQ(ronda_output(operation.handle(), &data, &rows, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  operation.Release();
}

TEST(COutputsTest, TooLittleRoomIsAnErrorOfThatRankAlone) {
  RunRanks([] {
    // Repeats the steps, so that the operations come from the response cache and then from a locked schedule.
    for (int step = 0; step < 20; ++step) {
      ExpectTooSmallOnRank1<ronda_allgather_args>(ronda_allgather_async, RONDA_ALLGATHER_ARGS_INIT, "allgather", 18);
      ExpectTooSmallOnRank1<ronda_alltoall_args>(ronda_alltoall_async, RONDA_ALLTOALL_ARGS_INIT, "alltoall", 6);
      ExpectTooSmallOnRank1<ronda_reducescatter_args>(ronda_reducescatter_async, RONDA_REDUCESCATTER_ARGS_INIT,
                                                      "reducescatter", 2);
      ExpectTooSmallOnRank1<ronda_scatter_args>(ronda_scatter_async, RONDA_SCATTER_ARGS_INIT, "scatter", 2);
    }
    ronda_gather_args gather = RONDA_GATHER_ARGS_INIT;
    gather.root = 1;
    std::vector<float> output(18, kUntouched);
    Gather operation(ronda_gather_async, gather, "gather");
    EXPECT_EQ(operation.Run(&output, 17), ronda_rank() == 1 ? RONDA_ERROR_INVALID_ARGUMENT : RONDA_OK);
    EXPECT_THAT(output, Each(kUntouched));
    operation.Release();
  });
}

TEST(COutputsTest, AMemberOfAGroupWithoutRoomDoesNotFailTheOthers) {
  RunRanks([] {
    const int64_t shape[1] = {1};
    const float input = static_cast<float>(ronda_rank());
    std::vector<float> outputs[2] = {std::vector<float>(kRanks, kUntouched), std::vector<float>(kRanks, kUntouched)};
    std::vector<ronda_allgather_args> args(2, RONDA_ALLGATHER_ARGS_INIT);
    const char* const names[2] = {"x", "y"};
    for (size_t i = 0; i < 2; ++i) {
      args[i].tensor = {names[i], RONDA_FLOAT32, 1, shape};
      args[i].input = &input;
      args[i].output = outputs[i].data();
      args[i].output_bytes = i == 0 && ronda_rank() == 0 ? 0 : sizeof(float) * kRanks;
    }
    ronda_handle handles[2] = {0, 0};
    ASSERT_EQ(ronda_grouped_allgather_async(args.data(), 2, "g", handles), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_synchronize(handles[0]), ronda_rank() == 0 ? RONDA_ERROR_INVALID_ARGUMENT : RONDA_OK);
    EXPECT_EQ(ronda_synchronize(handles[1]), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(outputs[1], ElementsAre(0, 1, 2));
    EXPECT_EQ(ronda_release_all(handles, 2), RONDA_OK);
  });
}

TEST(COutputsTest, OutputsThatCannotBeAreRefused) {
  RunRanks([] {
    if (ronda_rank() != 0) return;
    Alltoall alltoall(ronda_alltoall_async, RONDA_ALLTOALL_ARGS_INIT, "t");
    ronda_handle handle = 0;
    const auto refusal = [&](void* output, size_t bytes) -> std::string {
      alltoall.args().output = output;
      alltoall.args().output_bytes = bytes;
      EXPECT_EQ(ronda_alltoall_async(&alltoall.args(), &handle), RONDA_ERROR_INVALID_ARGUMENT);
      return ronda_last_error();
    };
    float* const input = alltoall.input().data();
    EXPECT_THAT(refusal(input, 24), HasSubstr("'t': input and output overlap"));
    EXPECT_THAT(refusal(input + 5, 4), HasSubstr("overlap"));
    EXPECT_THAT(refusal(input - 1, 5), HasSubstr("overlap"));
    EXPECT_THAT(refusal(nullptr, 24), HasSubstr("'t': output is null, but output_bytes is 24"));
    EXPECT_EQ(handle, 0);
  });
}

// Input and output are adjacent in one buffer.
TEST(COutputsTest, InputAndOutputMayBeNeighbours) {
  RunRanks([] {
    std::vector<float> both(2 + kRanks, static_cast<float>(ronda_rank()));
    const int64_t shape[1] = {1};
    ronda_allgather_args args = RONDA_ALLGATHER_ARGS_INIT;
    args.tensor = {"t", RONDA_FLOAT32, 1, shape};
    args.input = &both[kRanks];
    args.output = both.data();
    args.output_bytes = kRanks * sizeof(float);
    ronda_handle handle = 0;
    ASSERT_EQ(ronda_allgather_async(&args, &handle), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_release(handle), RONDA_OK);
    const auto own = static_cast<float>(ronda_rank());
    EXPECT_THAT(both, ElementsAre(0, 1, 2, own, own));
  });
}

}  // namespace
