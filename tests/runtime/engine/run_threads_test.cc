// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/run_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/engine/job.h"

namespace ronda {
namespace {

using ::ronda::testing::Barrier;
using ::ronda::testing::CarryOut;
using ::ronda::testing::Sum;
using ::testing::HasSubstr;

TEST(RunThreads, EveryRankIsAThreadWithARuntime) {
  std::atomic<int> ranks{0};
  const RunThreadsOutcome outcome = RunThreads({.size = 4, .hostname = "here"}, [&](Runtime& runtime) {
    ranks |= 1 << runtime.topology().rank;
    EXPECT_EQ(runtime.topology().size, 4);
    EXPECT_EQ(runtime.topology().local_size, 4);
    EXPECT_EQ(runtime.topology().hostname, "here");
    std::vector<float> data(3, 1.0f);
    const absl::Status status = CarryOut(runtime, Sum("x", &data));
    EXPECT_EQ(data[0], 4.0f);
    return status;
  });
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.exception, nullptr);
  EXPECT_EQ(ranks.load(), 15);
}

TEST(RunThreads, ErrorOfOneBodyEndsTheOthersAndComesFirst) {
  std::atomic<int> told{0};
  const RunThreadsOutcome outcome = RunThreads({.size = 3}, [&](Runtime& runtime) -> absl::Status {
    if (runtime.topology().rank == 2) return absl::DataLossError("bad batch");
    const absl::Status status = CarryOut(runtime, Barrier("b"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("bad batch"));
    ++told;
    return status;
  });
  EXPECT_EQ(outcome.status, absl::DataLossError("rank 2: bad batch"));
  EXPECT_EQ(outcome.exception, nullptr);
  EXPECT_EQ(told.load(), 2);
}

TEST(RunThreads, ExceptionOfABodyIsHandedOn) {
  const RunThreadsOutcome outcome = RunThreads({.size = 2}, [&](Runtime& runtime) {
    if (runtime.topology().rank == 1) throw std::out_of_range("batch 7");
    return CarryOut(runtime, Barrier("b"));
  });
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("rank 1: its body threw: batch 7"));
  ASSERT_NE(outcome.exception, nullptr);
  EXPECT_THROW(std::rethrow_exception(outcome.exception), std::out_of_range);
}

TEST(RunThreads, JobsFollowEachOtherAlsoAfterFailures) {
  for (int round = 0; round < 5; ++round) {
    EXPECT_FALSE(RunThreads({.size = 2}, [](Runtime&) { return absl::AbortedError("on purpose"); }).status.ok());
    EXPECT_TRUE(RunThreads({.size = 2}, [](Runtime& runtime) { return CarryOut(runtime, Barrier("b")); }).status.ok());
  }
}

TEST(RunThreads, NeedsARank) {
  const RunThreadsOutcome outcome = RunThreads({.size = 0}, [](Runtime&) { return absl::OkStatus(); });
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ronda
