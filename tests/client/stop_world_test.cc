// SPDX-License-Identifier: Apache-2.0

// Tests jobs whose ranks are asked to stop. All ranks see the request in the same call, and exit without an error.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::ExpectRankProgramSucceeds;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kSignalStep = 20;   // late enough for a locked schedule
constexpr int kLastStep = 10000;  // which no job of these tests reaches

void TrainStep() {
  std::vector<float> first(7, 1), second(1000, 1);
  const ronda::Handle one = ronda::allreduce_async(ronda::tensor("first", first));
  const ronda::Handle two = ronda::allreduce_async(ronda::tensor("second", second));
  one.synchronize();
  two.synchronize();
}

// Expects that all ranks have stopped at the same step.
void ExpectTheSameEverywhere(std::int64_t step) {
  EXPECT_THAT(ronda::allgather("step", &step, {1}), Each(step));
  EXPECT_LT(step, kLastStep);
}

// Trains until the job must stop. Rank `asked` receives the signal in step kSignalStep. Returns the number of the first
// step that was not run.
std::int64_t TrainUntilStopped(int asked) {
  std::int64_t step = 0;
  for (; step < kLastStep && !ronda::should_stop(); ++step) {
    if (step == kSignalStep && ronda::rank() == asked) kill(getpid(), SIGTERM);
    TrainStep();
  }
  return step;
}

void OneIsAsked() {
  ronda::init();
  const std::int64_t step = TrainUntilStopped(kRanks - 1);
  EXPECT_EQ(step, kSignalStep + 2) << "the signal came after a call, the next told it, and the one after that heard it";
  EXPECT_TRUE(ronda::should_stop()) << "and so do the calls after that";
  ExpectTheSameEverywhere(step);
  ronda::shutdown();
  EXPECT_EQ(ronda::try_should_stop().status().code(), RONDA_ERROR_NOT_INITIALIZED);
}

// The ranks have been asked to stop, but start another job in the same processes.
void TheNextJobHearsOfItToo() {
  ronda::init();
  TrainUntilStopped(0);
  ronda::shutdown();
  setenv("RONDA_JOB_ID", (std::string(getenv("RONDA_JOB_ID")) + "-next").c_str(), 1);
  ronda::init();
  EXPECT_FALSE(ronda::should_stop());
  EXPECT_TRUE(ronda::should_stop());
  ronda::shutdown();
}

void TheSignalHasItsEffectAgainAfterTheJob() {
  const auto has_default_action = [] {
    struct sigaction action = {};
    sigaction(SIGTERM, nullptr, &action);
    return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
  };
  ronda::init();
  ronda::should_stop();
  EXPECT_FALSE(has_default_action());
  ronda::shutdown();
  EXPECT_TRUE(has_default_action());
}

// Rank r has r + 1 batches in every epoch, so the last rank receives the signal after the others have joined.
void AskedWhileTheOthersHaveJoined() {
  ronda::init();
  std::int64_t epochs = 0;
  for (bool stops = false; !stops; ++epochs) {
    for (int batch = 0; batch <= ronda::rank(); ++batch) {
      if (epochs == 1 && batch == kRanks - 1) kill(getpid(), SIGTERM);
      ronda::should_stop();
      TrainStep();
    }
    ronda::join();
    EXPECT_FALSE(ronda::should_stop()) << "the first call after a join";
    stops = ronda::should_stop();
    ASSERT_LT(epochs, 10);
  }
  EXPECT_EQ(epochs, 2);
  ExpectTheSameEverywhere(epochs);
  ronda::shutdown();
}

void NotWhileARankHasJoined() {
  ronda::init();
  const ronda::ProcessSet apart = ronda::add_process_set({0, 1, 2});
  if (ronda::rank() == 0) {
    const ronda::Handle join = ronda::join_async();
    const ronda::Status status = ronda::try_should_stop().status();
    EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), HasSubstr("this rank has joined"));
    ronda::barrier(apart);  // rank 0 has not joined in this set
    join.synchronize();
  } else {
    ronda::barrier(apart);
    ronda::join();
  }
  EXPECT_FALSE(ronda::should_stop());
  ronda::shutdown();
}

void PeerFails() {
  ronda::init();
  ronda::should_stop();
  TrainStep();
  if (ronda::rank() == 1) _exit(0);
  ronda::Status status;
  while (status.ok()) status = ronda::try_should_stop().status();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  EXPECT_EQ(ronda::try_shutdown().code(), RONDA_ERROR_PEER_FAILED);
}

// Ranks that are threads share a signal. The signal may arrive when only some ranks have made a call, but all ranks
// must stop in the same call.
void RanksAreThreads() {
  EXPECT_EQ(ronda_should_stop(nullptr), RONDA_ERROR_NOT_INITIALIZED);
  ronda::run_threads(kRanks, [] {
    EXPECT_EQ(ronda_should_stop(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
    ExpectTheSameEverywhere(TrainUntilStopped(1));
  });
}

class StopWorldTest : public ::testing::TestWithParam<std::string> {};

TEST_P(StopWorldTest, EndsWell) { ExpectRankProgramSucceeds(GetParam(), kRanks); }

INSTANTIATE_TEST_SUITE_P(Job, StopWorldTest,
                         ::testing::Values("OneIsAsked", "TheNextJobHearsOfItToo",
                                           "TheSignalHasItsEffectAgainAfterTheJob", "AskedWhileTheOthersHaveJoined",
                                           "NotWhileARankHasJoined"),
                         [](const auto& param) { return param.param; });

TEST(StopFailureTest, AFailureOfTheJobIsReportedByName) {
  const ronda::testing::JobResult result = ronda::testing::RunRankProgram("PeerFails", kRanks);
  EXPECT_EQ(result.ranks[0].exit_code, 0) << result.ranks[0].output;
  EXPECT_EQ(result.ranks[2].exit_code, 0) << result.ranks[2].output;
}

TEST(StopThreadsTest, RanksThatAreThreadsAgree) { ExpectRankProgramSucceeds("RanksAreThreads", 1); }

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& StopPrograms() {
  static const std::vector<RankProgram>* const programs =
      new std::vector<RankProgram>{{"OneIsAsked", OneIsAsked},
                                   {"TheNextJobHearsOfItToo", TheNextJobHearsOfItToo},
                                   {"TheSignalHasItsEffectAgainAfterTheJob", TheSignalHasItsEffectAgainAfterTheJob},
                                   {"AskedWhileTheOthersHaveJoined", AskedWhileTheOthersHaveJoined},
                                   {"NotWhileARankHasJoined", NotWhileARankHasJoined},
                                   {"PeerFails", PeerFails},
                                   {"RanksAreThreads", RanksAreThreads}};
  return *programs;
}

}  // namespace ronda::testing
