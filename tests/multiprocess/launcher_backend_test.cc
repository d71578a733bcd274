// SPDX-License-Identifier: Apache-2.0

// Tests that RONDA_BACKEND selects how data travels between ranks that rondarun starts on one host.
#include <filesystem>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"
#include "tests/multiprocess/rank_programs.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

// -- Programs of ranks --

void SumOnce() {
  init();
  std::vector<float> data(1000, static_cast<float>(rank() + 1));
  allreduce(tensor("data", data), {Op::Sum});
  EXPECT_EQ(data.back(), static_cast<float>(size() * (size() + 1) / 2));
  shutdown();
}

// -- The tests --

struct Outcome {
  int exit_code = 0;
  std::string text;
};

Outcome Sum(const std::string& backend) {
  LauncherRun run({"-np", "2", std::filesystem::read_symlink("/proc/self/exe"), "--rank_program=sum_once"},
                  {.environment = {"RONDA_BACKEND=" + backend, "RONDA_LOG_LEVEL=info",
                                   "RONDA_MASTER_PORT=1"}});  // as another job's rank would inherit it
  const int exit_code = run.Finish();
  return {.exit_code = exit_code, .text = run.err()};
}

TEST(LauncherBackendTest, TcpNeedsNothingElse) {
  const Outcome outcome = Sum("tcp");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("data goes over tcp"));
}

TEST(LauncherBackendTest, BackendThatCannotSaysWhy) {
  const Outcome hierarchical = Sum("hierarchical-tcp");
  EXPECT_NE(hierarchical.exit_code, 0);
  EXPECT_THAT(hierarchical.text, HasSubstr("hierarchical-tcp"));
  const Outcome mpi = Sum("mpi");
  EXPECT_NE(mpi.exit_code, 0);
  EXPECT_THAT(mpi.text, HasSubstr("start the job with rondarun --mpi or mpirun"));
}

}  // namespace

std::vector<testing::RankProgram> LauncherBackendPrograms() { return {{"sum_once", SumOnce}}; }

}  // namespace ronda
