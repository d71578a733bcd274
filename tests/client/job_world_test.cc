// SPDX-License-Identifier: Apache-2.0

// Tests ronda::Job. A return from the object's block shuts the job down. An exception that leaves the block fails the
// job on the other ranks.
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

using ronda::testing::AHostARank;
using ronda::testing::ExpectRankProgramSucceeds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kThrowingRank = 1;

float Sum() {
  float value = 1;
  ronda::allreduce(ronda::tensor("sum", &value), {ronda::Op::Sum});
  return value;
}

int ReturnFromALoop() {
  const ronda::Job job;
  for (int step = 0;; ++step) {
    EXPECT_EQ(Sum(), kRanks);
    if (step == 5) return step;
  }
}

void Returns() {
  ronda::testing::MoveToAHostOfItsOwnIfAsked();
  EXPECT_EQ(ReturnFromALoop(), 5);
  EXPECT_FALSE(ronda::is_initialized());
}

// One rank throws an exception. The next operation of every other rank fails with an error that names this rank.
void TrainUntilAnErrorComes() {
  const ronda::Job job;
  Sum();
  if (ronda::rank() == kThrowingRank) throw std::runtime_error("the data is damaged");
  while (true) Sum();
}

void Throws() {
  ronda::testing::MoveToAHostOfItsOwnIfAsked();
  std::string error;
  try {
    TrainUntilAnErrorComes();
  } catch (const std::exception& caught) {
    error = caught.what();
  }
  EXPECT_FALSE(ronda::is_initialized());
  if (error == "the data is damaged") return;
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1"), HasSubstr("an exception has left the block of its ronda::Job")));
}

void ShutsDownAndJoinsAnother() {
  {
    const ronda::Job job;
    EXPECT_EQ(Sum(), kRanks);
    ronda::shutdown();
    EXPECT_FALSE(ronda::is_initialized());
  }
  setenv("RONDA_JOB_ID", (std::getenv("RONDA_JOB_ID") + std::string("-next")).c_str(), 1);
  ronda::Options options;
  options.process_sets = {{0, 2}};
  const ronda::Job next(options);
  EXPECT_EQ(Sum(), kRanks);
  EXPECT_THROW(ronda::Job(), ronda::Error) << "one at a time";
  EXPECT_TRUE(ronda::is_initialized()) << "the refused one leaves the job alone";
}

const std::vector<ronda::testing::RankProgram> kPrograms = {
    {"Job.Returns", Returns},
    {"Job.Throws", Throws},
    {"Job.ShutsDownAndJoinsAnother", ShutsDownAndJoinsAnother},
};

TEST(JobWorldTest, AReturnOutOfTheBlockEndsTheJobInOrder) {
  ExpectRankProgramSucceeds("Job.Returns", kRanks);
  ExpectRankProgramSucceeds("Job.Returns", kRanks, AHostARank());
}

TEST(JobWorldTest, AnExceptionThatLeavesTheBlockFailsTheOtherRanksAtOnce) {
  ExpectRankProgramSucceeds("Job.Throws", kRanks);
  ExpectRankProgramSucceeds("Job.Throws", kRanks, AHostARank());
}

TEST(JobWorldTest, AProgramMayShutDownItself) { ExpectRankProgramSucceeds("Job.ShutsDownAndJoinsAnother", kRanks); }

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& JobPrograms() { return kPrograms; }

}  // namespace ronda::testing
