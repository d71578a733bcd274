// SPDX-License-Identifier: Apache-2.0

// In each test, one rank fails in a different way. The other ranks must get an error that names the failed rank, and no
// rank may hang.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::AHostARank;
using ronda::testing::ExpectRankProgramSucceeds;
using ronda::testing::JobResult;
using ronda::testing::OverTcp;
using ronda::testing::ProcessJob;
using ronda::testing::RunRankProgram;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kFailingRank = 1;

// Expects the error that a surviving rank must get: it says that kFailingRank has failed. The rank gets the error
// immediately, not at a deadline, and every later call returns the same error.
void ExpectPeerFailure(const ronda::Status& status) {
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

void ReduceUntilItFails() {
  std::vector<float> values(1000, 1);
  ronda::Status status;
  while (status.ok()) status = ronda::try_allreduce(ronda::tensor("w", values));
  ExpectPeerFailure(status);
  ExpectPeerFailure(ronda::try_allreduce(ronda::tensor("v", values)));
  ExpectPeerFailure(ronda::try_barrier());
  ExpectPeerFailure(ronda::try_shutdown());
  EXPECT_FALSE(ronda::is_initialized());
}

void Throws() {
  ronda::init();
  if (ronda::rank() == kFailingRank) throw std::runtime_error("the data is damaged");
  ReduceUntilItFails();
}

void Exits() {
  ronda::init();
  if (ronda::rank() == kFailingRank) _exit(3);
  ReduceUntilItFails();
}

constexpr char kExitText[] = "has ended without ronda_shutdown()";

void LearnHowItEnds(const std::string& text) {
  ronda::Status status;
  while (status.ok()) status = ronda::try_barrier();
  ExpectPeerFailure(status);
  EXPECT_THAT(status.message(), HasSubstr(text));
}

void BeginTogether() {
  ronda::testing::MoveToAHostOfItsOwnIfAsked();
  ronda::init();
  ronda::barrier();
}

void ReturnsFromMain() {
  BeginTogether();
  if (ronda::rank() != kFailingRank) LearnHowItEnds(kExitText);
}

std::uint64_t ReportsSent() {
  ronda_statistics statistics = RONDA_STATISTICS_INIT;
  EXPECT_EQ(ronda_get_statistics(&statistics), RONDA_OK);
  return statistics.reports_sent;
}

// The program exits while another of its threads is blocked in a call. That call does not return, because an error is
// of no use to a program that has exited.
void ExitsBesideACall() {
  BeginTogether();
  if (ronda::rank() != kFailingRank) return LearnHowItEnds(kExitText);
  const std::uint64_t before = ReportsSent();
  std::thread([] {
    float value = 1;
    _exit(ronda::try_allreduce(ronda::tensor("lonely", &value)).ok() ? 8 : 9);
  }).detach();
  while (ReportsSent() == before) std::this_thread::yield();
  std::exit(3);
}

// A rank's child process exits before the rank is killed. This must not count as the end of the rank.
void IsKilledAfterTheExitOfAChild() {
  BeginTogether();
  if (ronda::rank() != kFailingRank) {
    LearnHowItEnds(std::getenv("TEST_DEATH"));
    return;
  }
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  waitpid(child, nullptr, 0);
  raise(SIGKILL);
}

// Functions that a program registered with atexit() before init() still run when the program exits. They may shut the
// job down without an error.
void ShutsDownAtExit() {
  std::atexit([] {
    float value = 1;
    const bool is_well = ronda::try_allreduce(ronda::tensor("last", &value)).ok() && ronda::try_shutdown().ok();
    if (!is_well) _exit(9);
  });
  BeginTogether();
}

// Several allreduces are in flight on all ranks when one rank dies. The first allreduce is complete, and the last is
// not.
void IsKilledInTheMiddleOfAnAllreduce() {
  ronda::Options options;
  options.fusion_threshold = 0;
  ronda::init(options);
  constexpr int kTensors = 12;
  std::vector<std::vector<float>> tensors(kTensors, std::vector<float>(std::size_t{1} << 20, 1));
  ronda::barrier();
  std::vector<ronda::Handle> handles;
  for (int i = 0; i < kTensors; ++i) {
    handles.push_back(ronda::allreduce_async(ronda::tensor("t" + std::to_string(i), tensors[i])));
  }
  if (ronda::rank() == kFailingRank) {
    handles.front().synchronize();
    raise(SIGKILL);
  }
  for (ronda::Handle& handle : handles) {
    const ronda::Status status = handle.wait();
    if (!status.ok()) ExpectPeerFailure(status);
  }
  ReduceUntilItFails();
}

// Rank 0 creates the go-ahead file when kFailingRank may continue. A collective could not carry this signal, because
// kFailingRank would be late for it too.
std::string GoAheadFile() { return ::testing::TempDir() + "/" + std::getenv("RONDA_JOB_ID") + ".go"; }

void AwaitGoAhead() {
  while (access(GoAheadFile().c_str(), F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  unlink(GoAheadFile().c_str());
}

void NeverSubmits() {
  ronda::Options options;
  options.stall_warning = std::chrono::milliseconds(200);
  options.stall_deadline = std::chrono::milliseconds(1500);
  ronda::init(options);
  float value = 1;
  if (ronda::rank() == kFailingRank) {
    AwaitGoAhead();
  } else {
    const ronda::Status status = ronda::try_allreduce(ronda::tensor("forgotten", &value));
    EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'forgotten'"), HasSubstr("missing: rank 1")));
    if (ronda::rank() == 0) std::ofstream(GoAheadFile()).put('\n');
  }
  value = 1;
  ronda::allreduce(ronda::tensor("remembered", &value), {ronda::Op::Sum});
  EXPECT_EQ(value, ronda::size());
  ronda::shutdown();
}

void LeavesEarly() {
  ronda::init();
  float value = 1;
  if (ronda::rank() != kFailingRank) {
    const ronda::Status status = ronda::try_allreduce(ronda::tensor("lonely", &value));
    EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1"), HasSubstr("has shut down"), HasSubstr("'lonely'")));
  }
  ronda::shutdown();
}

void OneNeverStarts() {
  if (ronda::Options options; std::getenv("RONDA_RANK") != std::string("1")) {
    options.start_timeout = std::chrono::milliseconds(500);
    const ronda::Status status = ronda::try_init(options);
    EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("1"));
    EXPECT_FALSE(ronda::is_initialized());
  }
}

void BadEnvironment() {
  const ronda::Status status = ronda::try_init();
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("RONDA_STALL_WARNING"), HasSubstr("soon")));
}

const std::vector<ronda::testing::RankProgram> kPrograms = {
    {"Throws", Throws},
    {"Exits", Exits},
    {"BeginTogether", BeginTogether},
    {"ReturnsFromMain", ReturnsFromMain},
    {"ExitsBesideACall", ExitsBesideACall},
    {"IsKilledAfterTheExitOfAChild", IsKilledAfterTheExitOfAChild},
    {"ShutsDownAtExit", ShutsDownAtExit},
    {"IsKilledInTheMiddleOfAnAllreduce", IsKilledInTheMiddleOfAnAllreduce},
    {"NeverSubmits", NeverSubmits},
    {"LeavesEarly", LeavesEarly},
    {"OneNeverStarts", OneNeverStarts},
    {"BadEnvironment", BadEnvironment},
};

// Expects that all ranks except kFailingRank have exited with code 0, and that no shared memory is left.
void ExpectSurvivorsSucceed(const JobResult& result) {
  for (int rank = 0; rank < static_cast<int>(result.ranks.size()); ++rank) {
    if (rank == kFailingRank) continue;
    EXPECT_EQ(result.ranks[rank].exit_code, 0) << "rank " << rank << " said:\n" << result.ranks[rank].output;
  }
  EXPECT_THAT(result.left_in_shared_memory, IsEmpty());
}

TEST(FailureWorldTest, ARankThatThrowsFailsTheOthersByName) {
  const JobResult result = RunRankProgram("Throws", 3);
  ExpectSurvivorsSucceed(result);
  EXPECT_EQ(result.ranks[kFailingRank].signal, SIGABRT);
  EXPECT_THAT(result.ranks[kFailingRank].output, HasSubstr("the data is damaged"));
}

TEST(FailureWorldTest, ARankThatExitsFailsTheOthersByName) {
  const JobResult result = RunRankProgram("Exits", 3);
  ExpectSurvivorsSucceed(result);
  EXPECT_EQ(result.ranks[kFailingRank].exit_code, 3);
}

// Returns jobs whose ranks use shared memory, jobs that send data over TCP, and jobs that also send control messages
// over TCP.
std::vector<ProcessJob> EveryWayToMeet() { return {{}, OverTcp(), AHostARank()}; }

TEST(FailureWorldTest, OthersLearnThatAProgramHasReturnedFromMain) {
  for (const ProcessJob& job : EveryWayToMeet()) {
    const JobResult result = RunRankProgram("ReturnsFromMain", 3, job);
    ExpectSurvivorsSucceed(result);
    EXPECT_EQ(result.ranks[kFailingRank].exit_code, 0) << result.ranks[kFailingRank].output;
    EXPECT_THAT(result.ranks[kFailingRank].output, Not(HasSubstr(kExitText))) << "nothing fails there";
  }
}

TEST(FailureWorldTest, OthersLearnThatAProgramHasExitedWhileOneOfItsThreadsIsInACall) {
  for (const ProcessJob& job : EveryWayToMeet()) {
    const JobResult result = RunRankProgram("ExitsBesideACall", 3, job);
    ExpectSurvivorsSucceed(result);
    EXPECT_EQ(result.ranks[kFailingRank].exit_code, 3) << result.ranks[kFailingRank].output;
  }
}

TEST(FailureWorldTest, TheExitOfAChildIsNotItsParents) {
  ProcessJob in_memory, across = AHostARank();
  in_memory.env.emplace_back("TEST_DEATH", ") died");
  across.env.emplace_back("TEST_DEATH", "is gone: its connection closed");
  for (const ProcessJob& job : {in_memory, across}) {
    const JobResult result = RunRankProgram("IsKilledAfterTheExitOfAChild", 3, job);
    ExpectSurvivorsSucceed(result);
    EXPECT_EQ(result.ranks[kFailingRank].signal, SIGKILL);
  }
}

TEST(FailureWorldTest, RanksThatAllReturnFromMainEndWell) {
  for (const ProcessJob& job : EveryWayToMeet()) ExpectRankProgramSucceeds("BeginTogether", 3, job);
}

TEST(FailureWorldTest, AProgramMayShutDownInAFunctionOfAtexit) {
  for (const ProcessJob& job : EveryWayToMeet()) {
    const JobResult result = RunRankProgram("ShutsDownAtExit", 3, job);
    for (const auto& rank : result.ranks) {
      EXPECT_EQ(rank.exit_code, 0) << rank.output;
      EXPECT_THAT(rank.output, Not(HasSubstr(kExitText)));
    }
  }
}

TEST(FailureWorldTest, ARankKilledInTheMiddleOfAnAllreduceFailsTheOthersByName) {
  const JobResult result = RunRankProgram("IsKilledInTheMiddleOfAnAllreduce", 3);
  ExpectSurvivorsSucceed(result);
  EXPECT_EQ(result.ranks[kFailingRank].signal, SIGKILL);
}

TEST(FailureWorldTest, ARankThatNeverSubmitsIsWarnedAboutAndThenAnError) {
  const JobResult result = RunRankProgram("NeverSubmits", 3);
  ExpectSurvivorsSucceed(result);
  EXPECT_THAT(result.ranks[0].output, AllOf(HasSubstr("'forgotten'"), HasSubstr("missing: rank 1"))) << "no warning";
}

TEST(FailureWorldTest, ARankThatLeavesEarlyFailsWhatTheOthersSubmit) {
  // The job has two ranks. In a larger job, a rank that submits late might get an error about a rank that left because
  // of the first error.
  const JobResult result = RunRankProgram("LeavesEarly", 2);
  ExpectSurvivorsSucceed(result);
  EXPECT_EQ(result.ranks[kFailingRank].exit_code, 0) << result.ranks[kFailingRank].output;
}

TEST(FailureWorldTest, ARankThatNeverStartsIsReportedByInit) {
  ExpectSurvivorsSucceed(RunRankProgram("OneNeverStarts", 3));
}

TEST(FailureWorldTest, AVariableThatMakesNoSenseIsNamedByInit) {
  ProcessJob job;
  job.env = {{"RONDA_STALL_WARNING", "soon"}};
  ExpectRankProgramSucceeds("BadEnvironment", 1, job);
}

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& FailurePrograms() { return kPrograms; }

}  // namespace ronda::testing
