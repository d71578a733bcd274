// SPDX-License-Identifier: Apache-2.0

// Tests the settings that ronda_init() reads from the environment and from its options.
#include <unistd.h>

#include <cstdlib>
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
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMisspelt[] = "RONDA_FUSION_TRESHOLD";

void StartsTwice() {
  for (int round = 0; round < 2; ++round) {
    ronda::init();
    ronda::barrier();
    ronda::shutdown();
  }
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

TEST(EnvironmentTest, OneRankWarnsOnceOfAMisspeltVariable) {
  const JobResult job = RunRankProgram("starts_twice", 2, {.env = {{kMisspelt, "1"}}});
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_EQ(job.ranks[0].exit_code, 0) << job.ranks[0].output;
  EXPECT_EQ(CountOf(job.ranks[0].output, kMisspelt), 1) << job.ranks[0].output;
  EXPECT_THAT(job.ranks[0].output, HasSubstr("is it RONDA_FUSION_THRESHOLD?"));
  EXPECT_THAT(job.ranks[1].output, Not(HasSubstr(kMisspelt)));
}

TEST(EnvironmentTest, OneRankWarnsOnceOfAValueOfEarlierVersionsAndTheJobRuns) {
  const JobResult job = RunRankProgram("starts_twice", 2, {.env = {{"RONDA_CONTROL", "grpc"}}});
  for (const auto& rank : job.ranks) EXPECT_EQ(rank.exit_code, 0) << rank.output;
  const std::string warning = "RONDA_CONTROL=\"grpc\": control messages go over TCP now";
  EXPECT_EQ(CountOf(job.ranks[0].output, warning), 1) << job.ranks[0].output;
  EXPECT_THAT(job.ranks[1].output, Not(HasSubstr(warning)));
}

// Removes a variable from the environment and returns its value, for programs that pass the value as an option.
std::string Take(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return "";
  std::string taken = value;
  unsetenv(name);
  return taken;
}

// Returns the options of a rank, and removes the corresponding variables from the environment.
ronda::Options WithoutVariables() {
  ronda::Options options;
  options.place = {std::stoi(Take("RONDA_RANK")), std::stoi(Take("RONDA_SIZE")), 0, 0};
  options.master_address = "127.0.0.1";
  options.master_port = std::stoi(Take("TEST_PORT"));
  options.secret = Take("TEST_SECRET");
  Take("RONDA_JOB_ID");
  return options;
}

void ExpectThreeRanksAddUp() {
  EXPECT_EQ(ronda::size(), 3);
  int sum = 1 << ronda::rank();
  ronda::allreduce(ronda::tensor("sum", &sum), {ronda::Op::Sum});
  EXPECT_EQ(sum, 7);
  ronda::shutdown();
}

void MeetsByOptions() {
  const ronda::Options options = WithoutVariables();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    EXPECT_TRUE(text.rfind("RONDA_", 0) != 0 || text.rfind("RONDA_HOSTS_PLUGIN=", 0) == 0) << text;
  }
  ronda::init(options);
  ExpectThreeRanksAddUp();
}

// The environment variables come from another launcher, and describe a different job.
void MeetsByOptionsInSpiteOfVariables() {
  const ronda::Options options = WithoutVariables();
  setenv("RONDA_RANK", "0", 1);
  setenv("RONDA_SIZE", "1", 1);
  setenv("RONDA_LOCAL_SIZE", "7", 1);
  setenv("RONDA_JOB_ID", "outer", 1);
  setenv("RONDA_MASTER_PORT", "1", 1);
  setenv("RONDA_JOB_SECRET", "outer", 1);
  ronda::init(options);
  ExpectThreeRanksAddUp();
}

void MeetsWithLocalRanksByOptions() {
  ronda::Options options = WithoutVariables();
  options.place->local_rank = options.place->rank;
  options.place->local_size = options.place->size;
  ronda::init(options);
  EXPECT_EQ(ronda::local_rank(), ronda::rank());
  ExpectThreeRanksAddUp();
}

// The program passes only a port as an option, like a framework that knows nothing but a free port.
void TakesThePlaceFromTheEnvironment() {
  ronda::Options options;
  options.master_port = std::stoi(Take("TEST_PORT"));
  Take("RONDA_JOB_ID");
  ronda::init(options);
  ExpectThreeRanksAddUp();
}

TEST(JobOptionsTest, RanksMeetWithoutVariables) {
  for (const char* program : {"meets_by_options", "meets_by_options_in_spite_of_variables",
                              "meets_with_local_ranks_by_options", "takes_the_place_from_the_environment"}) {
    SCOPED_TRACE(program);
    ronda::testing::ExpectRankProgramSucceeds(
        program, 3, {.env = {{"TEST_PORT", ronda::testing::FreePort()}, {"TEST_SECRET", "a secret"}}});
  }
}

// Expects that init() rejects the options. The process is not a rank of any job.
ronda::Status TryInit(const ronda::Options& options) {
  ronda::Status status = ronda::try_init(options);
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  return status;
}

TEST(JobOptionsTest, ValuesThatCannotBeAreNamedWithTheirOrigin) {
  ronda::Options options;
  options.place = {4, 4, 0, 0};
  EXPECT_THAT(TryInit(options).message(), AllOf(HasSubstr("RONDA_RANK=\"4\": should be an integer from 0 to 3"),
                                                HasSubstr("(ronda_options gives RONDA_RANK, RONDA_SIZE)")));
  options.place = {0, -2, 0, 0};
  EXPECT_THAT(TryInit(options).message(), HasSubstr("RONDA_SIZE=\"-2\""));
  options.place = {0, 2, 0, 0};
  EXPECT_THAT(TryInit(options).message(), HasSubstr("nothing says how the ranks find each other"));
  options.master_port = 70000;
  EXPECT_THAT(TryInit(options).message(), HasSubstr("RONDA_MASTER_PORT=\"70000\""));
  options.master_port = 1;
  options.master_address = "no address";
  EXPECT_THAT(TryInit(options).message(), HasSubstr("RONDA_MASTER_ADDR=\"no address\""));
}

TEST(JobOptionsTest, HalfAPairIsAnError) {
  ronda::Options options;
  options.place = {3, 0, 0, 0};
  EXPECT_THAT(TryInit(options).message(), HasSubstr("ronda_options.rank is set, but ronda_options.size is not"));
  options.place = {0, 0, 0, 2};
  EXPECT_THAT(TryInit(options).message(), HasSubstr("local_size is set, but ronda_options.size is not"));
  options.place = {0, 2, 1, 0};
  EXPECT_THAT(TryInit(options).message(), HasSubstr("local_rank is set, but ronda_options.local_size is not"));
  options.place.reset();
  options.master_address = "127.0.0.1";
  EXPECT_THAT(TryInit(options).message(), HasSubstr("master_address is set, but ronda_options.master_port is not"));
}

}  // namespace

const std::vector<ronda::testing::RankProgram>& ronda::testing::StartupPrograms() {
  static const auto* const programs =
      new std::vector<RankProgram>{{"starts_twice", StartsTwice},
                                   {"meets_by_options", MeetsByOptions},
                                   {"meets_by_options_in_spite_of_variables", MeetsByOptionsInSpiteOfVariables},
                                   {"meets_with_local_ranks_by_options", MeetsWithLocalRanksByOptions},
                                   {"takes_the_place_from_the_environment", TakesThePlaceFromTheEnvironment}};
  return *programs;
}
