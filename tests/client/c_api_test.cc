// SPDX-License-Identifier: Apache-2.0

// Tests the C ABI in a job of one rank, in a process that was not started by a launcher.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CApiTest : public ::testing::Test {
 protected:
  CApiTest() {
    allreduce_.tensor = {"x", RONDA_FLOAT32, 1, shape_};
    allreduce_.input = values_;
    allreduce_.output = values_;
    broadcast_.tensor = allreduce_.tensor;
    broadcast_.data = values_;
    allgather_.tensor = allreduce_.tensor;
    allgather_.input = values_;
  }
  ~CApiTest() override { ronda_shutdown(); }

  int64_t shape_[1] = {3};
  float values_[3] = {1, 2, 3};
  ronda_allreduce_args allreduce_ = RONDA_ALLREDUCE_ARGS_INIT;
  ronda_broadcast_args broadcast_ = RONDA_BROADCAST_ARGS_INIT;
  ronda_allgather_args allgather_ = RONDA_ALLGATHER_ARGS_INIT;
  ronda_handle handle_ = 0;
};

TEST_F(CApiTest, CallsBeforeInitSayWhatToDo) {
  const std::vector<ronda_status> statuses = {ronda_allreduce_async(&allreduce_, &handle_),
                                              ronda_broadcast_async(&broadcast_, &handle_),
                                              ronda_allgather_async(&allgather_, &handle_),
                                              ronda_barrier(0),
                                              ronda_synchronize(1000000),
                                              ronda_shutdown()};
  EXPECT_THAT(statuses, ::testing::Each(RONDA_ERROR_NOT_INITIALIZED));
  // The error text depends on whether an earlier test in this process had a job.
  EXPECT_THAT(ronda_last_error(), ::testing::AnyOf(HasSubstr("is not initialized: call ronda_init() first"),
                                                   HasSubstr("has been shut down: call ronda_init()")));
  EXPECT_EQ(handle_, 0);
}

TEST_F(CApiTest, ThereAreNoRanksBeforeInit) {
  EXPECT_EQ(ronda_is_initialized(), 0);
  EXPECT_EQ(ronda_rank(), -1);
  EXPECT_EQ(ronda_size(), -1);
  EXPECT_EQ(ronda_local_rank(), -1);
  EXPECT_EQ(ronda_local_size(), -1);
  EXPECT_EQ(ronda_cross_rank(), -1);
  EXPECT_EQ(ronda_cross_size(), -1);
}

TEST_F(CApiTest, AProcessWithoutLauncherIsAJobOfOneRank) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(ronda_is_initialized(), 1);
  EXPECT_EQ(ronda_rank(), 0);
  EXPECT_EQ(ronda_size(), 1);
  EXPECT_EQ(ronda_local_rank(), 0);
  EXPECT_EQ(ronda_local_size(), 1);
  EXPECT_EQ(ronda_cross_rank(), 0);
  EXPECT_EQ(ronda_cross_size(), 1);
}

// Sets environment variables, and removes them at the end of the test.
class PlaceTest : public CApiTest {
 protected:
  ~PlaceTest() override {
    for (const char* name : names_) unsetenv(name);
  }

  void Set(const char* name, const char* value) {
    setenv(name, value, 1);
    names_.push_back(name);
  }

 private:
  std::vector<const char*> names_;
};

TEST_F(PlaceTest, IsToldBeforeInitAndAfterIt) {
  ronda_place place = RONDA_PLACE_INIT;
  ASSERT_EQ(ronda_get_place(&place), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(place.launcher, RONDA_LAUNCHER_NONE);
  EXPECT_EQ(place.rank, -1);
  EXPECT_EQ(place.size, -1);
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK) << ronda_last_error();
  Set("RANK", "3");
  Set("WORLD_SIZE", "8");
  Set("LOCAL_RANK", "1");
  ASSERT_EQ(ronda_get_place(&place), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(place.struct_size, sizeof(place));
  EXPECT_EQ(place.launcher, RONDA_LAUNCHER_TORCHRUN);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, -1) << "the launcher does not tell it";
  EXPECT_EQ(place.cross_rank, -1);
  EXPECT_EQ(place.store_port, 0);
  EXPECT_STREQ(place.store_address, "");
}

TEST_F(PlaceTest, HasTheAddressThatFollowsFromTheNameOfTheJob) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) Set(name, "1");
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) Set(name, "2");
  Set("PMIX_NAMESPACE", "1234");
  ronda_place place = RONDA_PLACE_INIT;
  ASSERT_EQ(ronda_get_place(&place), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(place.launcher, RONDA_LAUNCHER_OPEN_MPI);
  EXPECT_STREQ(place.store_address, "127.0.0.1");
  EXPECT_GT(place.store_port, 0);
  ronda_place earlier;  // of a version without an address
  std::memset(&earlier, 0x7f, sizeof(earlier));
  earlier.struct_size = offsetof(ronda_place, store_port);
  ASSERT_EQ(ronda_get_place(&earlier), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(earlier.local_size, 2);
  EXPECT_EQ(earlier.store_port, 0x7f7f7f7f) << "not the caller's memory";
}

TEST_F(PlaceTest, ErrorsNameTheVariableOrTheArgument) {
  ronda_place place = RONDA_PLACE_INIT;
  Set("RANK", "3");
  EXPECT_EQ(ronda_get_place(&place), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("WORLD_SIZE is not set"));
  Set("WORLD_SIZE", "3");
  EXPECT_EQ(ronda_get_place(&place), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("RANK=\"3\": should be an integer from 0 to 2"));
  Set("RANK", "2");
  place.struct_size = 0;
  EXPECT_EQ(ronda_get_place(&place), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("RONDA_PLACE_INIT"));
  EXPECT_EQ(ronda_get_place(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
}

TEST_F(CApiTest, TheSecondInitIsRefusedAndHarmless) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  EXPECT_EQ(ronda_init(nullptr), RONDA_ERROR_ALREADY_INITIALIZED);
  EXPECT_THAT(ronda_last_error(), HasSubstr("already initialized"));
  EXPECT_EQ(ronda_barrier(0), RONDA_OK) << ronda_last_error();
}

TEST_F(CApiTest, InitWorksAgainAfterShutdown) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(ronda_init(nullptr), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_barrier(0), RONDA_OK) << ronda_last_error();
    ASSERT_EQ(ronda_shutdown(), RONDA_OK) << ronda_last_error();
    EXPECT_EQ(ronda_is_initialized(), 0);
    EXPECT_EQ(ronda_barrier(0), RONDA_ERROR_NOT_INITIALIZED);
    EXPECT_STREQ(ronda_last_error(), "Ronda has been shut down: call ronda_init() to join a job again");
  }
}

TEST_F(CApiTest, BadOptionsAreRefusedAndLeaveNothingBehind) {
  ronda_options options = RONDA_OPTIONS_INIT;
  options.struct_size = 1;
  EXPECT_EQ(ronda_init(&options), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("RONDA_OPTIONS_INIT"));
  EXPECT_EQ(ronda_is_initialized(), 0);
  EXPECT_EQ(ronda_init(nullptr), RONDA_OK) << ronda_last_error();
}

TEST_F(CApiTest, HandlesOutliveTheShutdownThatCompletesThem) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  ASSERT_EQ(ronda_allgather_async(&allgather_, &handle_), RONDA_OK) << ronda_last_error();
  ASSERT_EQ(ronda_shutdown(), RONDA_OK);
  int done = 0;
  EXPECT_EQ(ronda_poll(handle_, &done), RONDA_OK);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(ronda_synchronize(handle_), RONDA_OK);
  const void* data = nullptr;
  int64_t rows = 0;
  EXPECT_EQ(ronda_output(handle_, &data, &rows, nullptr, nullptr), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(rows, 3);
  EXPECT_EQ(ronda_release(handle_), RONDA_OK);
  EXPECT_EQ(ronda_release(handle_), RONDA_ERROR_NOT_INITIALIZED);
}

TEST_F(CApiTest, AHandleOfAnEarlierJobReachesNothingInTheNext) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  ASSERT_EQ(ronda_allreduce_async(&allreduce_, &handle_), RONDA_OK);
  ASSERT_EQ(ronda_release(handle_), RONDA_OK);
  ASSERT_EQ(ronda_shutdown(), RONDA_OK);
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  ronda_handle next = 0;
  ASSERT_EQ(ronda_allreduce_async(&allreduce_, &next), RONDA_OK);
  EXPECT_NE(next, handle_);
  EXPECT_EQ(ronda_synchronize(handle_), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda_release(next), RONDA_OK);
}

TEST_F(CApiTest, NullOutputsAreNamed) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  EXPECT_EQ(ronda_allreduce_async(&allreduce_, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_allreduce_async: handle is NULL"));
  EXPECT_EQ(ronda_broadcast_async(&broadcast_, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda_allgather_async(&allgather_, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(ronda_allgather_async(&allgather_, &handle_), RONDA_OK);
  EXPECT_EQ(ronda_poll(handle_, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_poll: done is NULL"));
  int64_t rows = 0;
  EXPECT_EQ(ronda_output(handle_, nullptr, &rows, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("data is NULL"));
  const void* data = nullptr;
  EXPECT_EQ(ronda_output(handle_, &data, nullptr, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("rows is NULL"));
  const int64_t* rows_per_member = nullptr;
  EXPECT_EQ(ronda_output(handle_, &data, &rows, &rows_per_member, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("members is NULL"));
  EXPECT_EQ(ronda_release(handle_), RONDA_OK);
}

TEST_F(CApiTest, NullArgumentsAreNamed) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  EXPECT_EQ(ronda_allreduce_async(nullptr, &handle_), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_allreduce_args is NULL"));
  EXPECT_EQ(ronda_broadcast_async(nullptr, &handle_), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_broadcast_args is NULL"));
  EXPECT_EQ(ronda_allgather_async(nullptr, &handle_), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("ronda_allgather_args is NULL"));
  allreduce_.input = nullptr;
  EXPECT_EQ(ronda_allreduce_async(&allreduce_, &handle_), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), AllOf(HasSubstr("'x'"), HasSubstr("input is null")));
  EXPECT_EQ(handle_, 0);
}

TEST_F(CApiTest, HandlesThatDoNotExistAreRefused) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  int done = 0;
  const void* data = nullptr;
  int64_t rows = 0;
  for (ronda_handle handle : {ronda_handle{0}, ronda_handle{-5}, INT64_MAX}) {
    EXPECT_EQ(ronda_poll(handle, &done), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_synchronize(handle), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_output(handle, &data, &rows, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(ronda_release(handle), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(ronda_last_error(), HasSubstr("there is no handle " + std::to_string(handle)));
  }
}

TEST_F(CApiTest, ResultThatTheOperationLacksIsRefused) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  ASSERT_EQ(ronda_allreduce_async(&allreduce_, &handle_), RONDA_OK);
  ASSERT_EQ(ronda_synchronize(handle_), RONDA_OK);
  const void* data = nullptr;
  int64_t rows = 0;
  EXPECT_EQ(ronda_output(handle_, &data, &rows, nullptr, nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda_last_error(), HasSubstr("without such a result (allreduce)"));
  int number = 0;
  EXPECT_EQ(ronda_last_rank(handle_, &number), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda_found_inf(handle_, &number), RONDA_OK) << "it was not asked for, and is not found";
  EXPECT_EQ(number, 0);
  EXPECT_EQ(ronda_release(handle_), RONDA_OK);
}

TEST_F(CApiTest, AllgatherReturnsElementsAndRowsPerMember) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  ASSERT_EQ(ronda_allgather_async(&allgather_, &handle_), RONDA_OK);
  ASSERT_EQ(ronda_synchronize(handle_), RONDA_OK);
  const void* data = nullptr;
  int64_t rows = 0;
  const int64_t* rows_per_member = nullptr;
  int members = 0;
  ASSERT_EQ(ronda_output(handle_, &data, &rows, &rows_per_member, &members), RONDA_OK) << ronda_last_error();
  EXPECT_EQ(rows, 3);
  ASSERT_EQ(members, 1);
  EXPECT_EQ(rows_per_member[0], 3);
  EXPECT_TRUE(std::equal(values_, values_ + 3, static_cast<const float*>(data)));
  EXPECT_EQ(ronda_release(handle_), RONDA_OK);
}

TEST_F(CApiTest, ReleaseWaitsForTheOperation) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  allreduce_.prescale = 2;
  ASSERT_EQ(ronda_allreduce_async(&allreduce_, &handle_), RONDA_OK);
  ASSERT_EQ(ronda_release(handle_), RONDA_OK);
  EXPECT_THAT(values_, ::testing::ElementsAre(2, 4, 6));
}

TEST_F(CApiTest, EveryThreadHasItsOwnLastError) {
  EXPECT_EQ(ronda_barrier(0), RONDA_ERROR_NOT_INITIALIZED);
  std::string elsewhere = "not read";
  std::thread([&elsewhere] { elsewhere = ronda_last_error(); }).join();
  EXPECT_EQ(elsewhere, "");
  EXPECT_THAT(ronda_last_error(), HasSubstr("call ronda_init()"));
}

TEST_F(CApiTest, ThreadsMayCallAtOnce) {
  ASSERT_EQ(ronda_init(nullptr), RONDA_OK);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const std::string name = "thread" + std::to_string(t);
      int64_t value = t;
      ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
      args.tensor = {name.c_str(), RONDA_INT64, 0, nullptr};
      args.input = args.output = &value;
      for (int i = 0; i < 100; ++i) {
        ronda_handle handle = 0;
        ASSERT_EQ(ronda_allreduce_async(&args, &handle), RONDA_OK) << ronda_last_error();
        ASSERT_EQ(ronda_release(handle), RONDA_OK);
        ASSERT_EQ(ronda_barrier(0), RONDA_OK) << ronda_last_error();
      }
      EXPECT_EQ(value, t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
