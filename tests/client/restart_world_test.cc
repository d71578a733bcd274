// SPDX-License-Identifier: Apache-2.0

// Tests shutdown() followed by another init() in the same process, after a job that succeeded and after one that
// failed.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::JobResult;
using ronda::testing::RunRankProgram;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

int Sum(int value) {
  ronda::allreduce(ronda::tensor("sum", &value), {ronda::Op::Sum});
  return value;
}

// The last of three ranks has died. Sets the environment so that the two survivors meet again as a job of two ranks.
void BecomeTwoRanks() {
  setenv("RONDA_JOB_ID", (std::getenv("RONDA_JOB_ID") + std::string("-again")).c_str(), 1);
  setenv("RONDA_SIZE", "2", 1);
}

void StartsAgainWithoutTheRankThatDied() {
  ronda::init();
  EXPECT_EQ(Sum(1), 3);
  if (ronda::rank() == 2) raise(SIGKILL);
  ronda::Status status;
  while (status.ok()) status = ronda::try_barrier();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
  EXPECT_THAT(status.message(), EndsWith(ronda::try_shutdown().message())) << "the first error is the last word";
  BecomeTwoRanks();
  ronda::init();
  EXPECT_EQ(ronda::size(), 2);
  EXPECT_EQ(Sum(1), 2);
  ronda::shutdown();
}

// A call that exceeds its deadline does not end the job: the job continues, and shuts down without an error.
void StartsAgainAfterADeadline() {
  for (int round = 0; round < 2; ++round) {
    ronda::init();
    float value = 1, go = 0;
    if (ronda::rank() == 0) {
      ronda::CallOptions call;
      call.deadline = std::chrono::milliseconds(100);
      const ronda::Status status = ronda::try_allreduce(ronda::tensor("lonely", &value), {}, call);
      EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE) << status.message();
    }
    ronda::broadcast(ronda::tensor("go", &go), 0);
    ronda::shutdown();
    EXPECT_FALSE(ronda::is_initialized());
  }
}

// A callback that throws fails the job while all ranks are alive. All ranks leave the job and start another one with
// the same name, while some ranks may still be in the failed job.
void StartsAgainAfterAFailureThatAllSurvive() {
  for (int round = 0; round < 2; ++round) {
    ronda::init();
    float value = 1;
    ronda::Handle handle = ronda::allreduce_async(ronda::tensor("w", &value));
    if (ronda::rank() == 1) handle.on_completion([](const ronda::Status&) { throw std::runtime_error("no"); });
    ronda::Status status;
    while (status.ok()) status = ronda::try_barrier();
    EXPECT_THAT(status.message(), HasSubstr("callback of tensor 'w' threw: no"));
    EXPECT_THAT(status.message(), EndsWith(ronda::try_shutdown().message()));
  }
  ronda::init();
  EXPECT_EQ(Sum(1), ronda::size());
  ronda::shutdown();
}

// Process sets and handles of one job do not exist in the next job.
void RestartedProcessKeepsNoStateOfAnEarlierJob() {
  ronda::Options options;
  options.process_sets = {{0}, {0, 1}};
  for (int round = 0; round < 3; ++round) {
    ronda::init(options);
    EXPECT_EQ(ronda::process_sets().size(), 3u);
    EXPECT_EQ(ronda::add_process_set({1}).id(), 3u) << "numbers begin anew";
    ronda::barrier();
    ronda::shutdown();
  }
}

void StartsAgainAfterProcessSetsThatCannotBe() {
  ronda::Options options;
  options.process_sets = {{0}, {7}};
  const ronda::Status status = ronda::try_init(options);
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("members [7] should be ascending ranks of this job"));
  EXPECT_FALSE(ronda::is_initialized());
  ronda::init();
  EXPECT_EQ(Sum(1), ronda::size());
  ronda::shutdown();
}

const std::vector<ronda::testing::RankProgram> kPrograms = {
    {"StartsAgainWithoutTheRankThatDied", StartsAgainWithoutTheRankThatDied},
    {"StartsAgainAfterADeadline", StartsAgainAfterADeadline},
    {"StartsAgainAfterAFailureThatAllSurvive", StartsAgainAfterAFailureThatAllSurvive},
    {"RestartedProcessKeepsNoStateOfAnEarlierJob", RestartedProcessKeepsNoStateOfAnEarlierJob},
    {"StartsAgainAfterProcessSetsThatCannotBe", StartsAgainAfterProcessSetsThatCannotBe},
};

TEST(RestartWorldTest, SurvivorsOfARankThatDiedStartAgainAsASmallerJob) {
  const JobResult result = RunRankProgram("StartsAgainWithoutTheRankThatDied", 3);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(result.ranks[rank].exit_code, 0) << result.ranks[rank].output;
  EXPECT_EQ(result.ranks[2].signal, SIGKILL);
  EXPECT_THAT(result.left_in_shared_memory, IsEmpty());
}

TEST(RestartWorldTest, AJobFollowsOneWithADeadlineThatPassed) {
  ronda::testing::ExpectRankProgramSucceeds("StartsAgainAfterADeadline", 3);
}

TEST(RestartWorldTest, AJobFollowsOneThatFailedWithAllRanksAlive) {
  ronda::testing::ExpectRankProgramSucceeds("StartsAgainAfterAFailureThatAllSurvive", 3);
}

TEST(RestartWorldTest, RestartedProcessKeepsNoStateOfAnEarlierJob) {
  ronda::testing::ExpectRankProgramSucceeds("RestartedProcessKeepsNoStateOfAnEarlierJob", 2);
}

TEST(RestartWorldTest, AJobFollowsOneWhoseProcessSetsWereRefused) {
  ronda::testing::ExpectRankProgramSucceeds("StartsAgainAfterProcessSetsThatCannotBe", 3);
}

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& RestartPrograms() { return kPrograms; }

}  // namespace ronda::testing
