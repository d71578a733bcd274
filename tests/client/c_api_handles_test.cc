// SPDX-License-Identifier: Apache-2.0

// Tests the C ABI's calls for many handles at once, and barriers with a handle, on ranks that are threads.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/ronda.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr size_t kTensors = 5;

void Call(void* context) { (*static_cast<const std::function<void()>*>(context))(); }

void RunRanks(const std::function<void()>& body) {
  EXPECT_EQ(ronda_run_threads(nullptr, kRanks, Call, const_cast<std::function<void()>*>(&body)), RONDA_OK)
      << ronda_last_error();
}

ronda_handle SumAsync(const std::string& name, float* value, ronda_reduce_op op = RONDA_SUM) {
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  const int64_t shape[1] = {1};
  args.tensor = {name.c_str(), RONDA_FLOAT32, 1, shape};
  args.input = args.output = value;
  args.op = op;
  ronda_handle handle = 0;
  EXPECT_EQ(ronda_allreduce_async(&args, &handle), RONDA_OK) << ronda_last_error();
  return handle;
}

// Rank 0 sends one message to rank `to`, which waits for it.
void Tell(int to) {
  int32_t word = 1;
  if (ronda_rank() == 0) {
    ronda_send_args args = RONDA_SEND_ARGS_INIT;
    args.tensor.dtype = RONDA_INT32;
    args.input = &word;
    args.to = to;
    EXPECT_EQ(ronda_send(&args), RONDA_OK) << ronda_last_error();
  } else if (ronda_rank() == to) {
    ronda_recv_args args = RONDA_RECV_ARGS_INIT;
    args.tensor.dtype = RONDA_INT32;
    args.output = &word;
    EXPECT_EQ(ronda_recv(&args), RONDA_OK) << ronda_last_error();
  }
}

TEST(CHandlesTest, OneCallServesTheHandlesOfAStep) {
  RunRanks([] {
    std::vector<float> values(kTensors, static_cast<float>(ronda_rank()));
    std::vector<ronda_handle> handles;
    for (size_t i = 0; i < kTensors; ++i) handles.push_back(SumAsync("t" + std::to_string(i), &values[i]));
    ASSERT_EQ(ronda_synchronize_all(handles.data(), kTensors), RONDA_OK) << ronda_last_error();
    EXPECT_THAT(values, Each(3));
    int done = -1;
    EXPECT_EQ(ronda_poll_all(handles.data(), kTensors, &done), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(done, 1);
    EXPECT_EQ(ronda_release_all(handles.data(), kTensors), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_poll(handles[0], &done), RONDA_ERROR_INVALID_ARGUMENT) << "a handle is still there";
  });
}

TEST(CHandlesTest, AnOperationInFlightIsSeenAmongThoseThatAreDone) {
  RunRanks([] {
    float first = 1, second = 1;
    std::vector<ronda_handle> handles = {SumAsync("first", &first)};
    ASSERT_EQ(ronda_synchronize(handles[0]), RONDA_OK) << ronda_last_error();
    int done = -1;
    if (ronda_rank() == 0) {
      handles.push_back(SumAsync("second", &second));
      EXPECT_EQ(ronda_poll_all(handles.data(), 2, &done), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(done, 0);
    }
    Tell(1);  // before this, rank 1 has not submitted the second one
    if (ronda_rank() != 0) handles.push_back(SumAsync("second", &second));
    EXPECT_EQ(ronda_synchronize_all(handles.data(), 2), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(second, kRanks);
    EXPECT_EQ(ronda_release_all(handles.data(), 2), RONDA_OK) << ronda_last_error();
  });
}

TEST(CHandlesTest, AllAreWaitedForAfterTheFirstError) {
  RunRanks([] {
    float wrong = 1, other = 1, right = 1;
    const ronda_reduce_op disagreed = ronda_rank() == 0 ? RONDA_MIN : RONDA_MAX;
    const ronda_handle handles[3] = {SumAsync("wrong", &wrong, disagreed), SumAsync("other", &other, disagreed),
                                     SumAsync("right", &right)};
    EXPECT_EQ(ronda_synchronize_all(handles, 3), RONDA_ERROR_MISMATCH);
    EXPECT_THAT(ronda_last_error(), HasSubstr("'wrong'"));
    EXPECT_EQ(right, kRanks);
    EXPECT_EQ(ronda_release_all(handles, 3), RONDA_OK) << ronda_last_error();
  });
}

TEST(CHandlesTest, AWaitGivesUpAfterItsTimeout) {
  RunRanks([] {
    float value = 1;
    ronda_handle handle = 0;
    int done = -1;
    if (ronda_rank() == 0) {
      handle = SumAsync("t", &value);
      EXPECT_EQ(ronda_synchronize_for(handle, 0, &done), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(done, 0);
      done = -1;
      EXPECT_EQ(ronda_synchronize_for(handle, 0.01, &done), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(done, 0);
    }
    Tell(1);  // before this, rank 1 has not submitted it
    if (ronda_rank() != 0) handle = SumAsync("t", &value);
    EXPECT_EQ(ronda_synchronize_for(handle, -1, &done), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(done, 1);
    EXPECT_EQ(value, kRanks);
    done = -1;
    EXPECT_EQ(ronda_synchronize_for(handle, 0, &done), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(done, 1) << "without a wait, too";
    EXPECT_EQ(ronda_synchronize_for(handle, std::nan(""), &done), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("timeout_s is not a number"));
    EXPECT_EQ(ronda_synchronize_for(handle, 0, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_synchronize_for(-7, 0, &done), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_release(handle), RONDA_OK) << ronda_last_error();
  });
}

TEST(CHandlesTest, AWaitWithATimeoutReturnsTheOperationsError) {
  RunRanks([] {
    float value = 1;
    const ronda_handle handle = SumAsync("t", &value, ronda_rank() == 0 ? RONDA_MIN : RONDA_MAX);
    int done = -1;
    EXPECT_EQ(ronda_synchronize_for(handle, 3600, &done), RONDA_ERROR_MISMATCH);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(ronda_release(handle), RONDA_OK) << ronda_last_error();
  });
}

TEST(CHandlesTest, ABlockingCallThatGivesUpLeavesAHandle) {
  RunRanks([] {
    float value = 1;
    const int64_t shape[1] = {1};
    ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
    args.tensor = {"t", RONDA_FLOAT32, 1, shape};
    args.input = args.output = &value;
    ronda_handle handle = -1;
    if (ronda_rank() == 0) {
      ASSERT_EQ(ronda_allreduce_for(&args, 0.01, &handle), RONDA_OK) << ronda_last_error();
      EXPECT_GT(handle, 0);
    }
    Tell(1);  // before this, rank 1 has not submitted it
    if (ronda_rank() == 0) {
      EXPECT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(ronda_release(handle), RONDA_OK) << ronda_last_error();
    } else {
      EXPECT_EQ(ronda_allreduce_for(&args, -1, &handle), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(handle, 0) << "it has ended";
    }
    EXPECT_EQ(value, kRanks);
    EXPECT_EQ(ronda_allreduce_for(&args, 0, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_allreduce_for(&args, std::nan(""), &handle), RONDA_ERROR_INVALID_ARGUMENT);
  });
}

TEST(CHandlesTest, WrongArgumentsAreNamed) {
  RunRanks([] {
    float value = 1;
    const ronda_handle handles[3] = {-7, SumAsync("t", &value), 0};
    int done = -1;
    EXPECT_EQ(ronda_synchronize_all(handles, 3), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_synchronize_all: there is no handle -7"));
    EXPECT_EQ(value, kRanks) << "the others are waited for";
    EXPECT_EQ(ronda_poll_all(handles, 3, &done), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(done, -1);
    EXPECT_EQ(ronda_poll_all(handles + 1, 1, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("done is NULL"));
    EXPECT_EQ(ronda_synchronize_all(nullptr, 2), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("handles is NULL, but count is 2"));
    EXPECT_EQ(ronda_synchronize_all(nullptr, 0), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_release_all(handles, 3), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_poll(handles[1], &done), RONDA_ERROR_INVALID_ARGUMENT) << "it has been given back all the same";
  });
}

TEST(CHandlesTest, ABarrierWithAHandleEndsWhenEveryRankHasSubmittedIt) {
  RunRanks([] {
    ronda_handle handle = 0;
    EXPECT_EQ(ronda_barrier_async(0, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_barrier_async(9, &handle), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("process set 9"));
    if (ronda_rank() == 0) {
      ASSERT_EQ(ronda_monitored_barrier_async(0, 60, &handle), RONDA_OK) << ronda_last_error();
      int done = -1;
      EXPECT_EQ(ronda_poll(handle, &done), RONDA_OK) << ronda_last_error();
      EXPECT_EQ(done, 0);
    }
    Tell(2);  // before this, rank 2 is not at the barrier
    if (ronda_rank() != 0) {
      // All ranks except rank 0 call the barrier without a handle. Rank 0 waits for the same barrier with a handle.
      EXPECT_EQ(ronda_barrier(0), RONDA_OK) << ronda_last_error();
      return;
    }
    EXPECT_EQ(ronda_synchronize(handle), RONDA_OK) << ronda_last_error();
    const void* data = nullptr;
    int64_t rows = 0;
    EXPECT_EQ(ronda_output(handle, &data, &rows, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_release(handle), RONDA_OK) << ronda_last_error();
  });
}

}  // namespace
