// A rank that fails, in every possible way: the others learn which one, and no rank hangs.
#include <signal.h>
#include <unistd.h>

#include <chrono>
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

using ronda::testing::JobResult;
using ronda::testing::RunRankProgram;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kFailingRank = 1;

// The view of the surviving ranks: the failure of kFailingRank, by name, at once and not by any deadline; then, and
// from then on, from every call.
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

// Several allreduces are under way on all ranks when one dies: the first of them is complete, the last is not.
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

// By which rank 0 tells kFailingRank that it may go on: a collective cannot, as it would be late itself.
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
    {"IsKilledInTheMiddleOfAnAllreduce", IsKilledInTheMiddleOfAnAllreduce},
    {"NeverSubmits", NeverSubmits},
    {"LeavesEarly", LeavesEarly},
    {"OneNeverStarts", OneNeverStarts},
    {"BadEnvironment", BadEnvironment},
};

// All ranks but kFailingRank have found what they expected.
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
  // Two ranks: with more, those that have got the error and leave would be named to those that submit later.
  const JobResult result = RunRankProgram("LeavesEarly", 2);
  ExpectSurvivorsSucceed(result);
  EXPECT_EQ(result.ranks[kFailingRank].exit_code, 0) << result.ranks[kFailingRank].output;
}

TEST(FailureWorldTest, ARankThatNeverStartsIsReportedByInit) {
  ExpectSurvivorsSucceed(RunRankProgram("OneNeverStarts", 3));
}

TEST(FailureWorldTest, AVariableThatMakesNoSenseIsNamedByInit) {
  ronda::testing::ProcessJob job;
  job.env = {{"RONDA_STALL_WARNING", "soon"}};
  ronda::testing::ExpectRankProgramSucceeds("BadEnvironment", 1, job);
}

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& FailurePrograms() { return kPrograms; }

}  // namespace ronda::testing
