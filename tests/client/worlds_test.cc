// SPDX-License-Identifier: Apache-2.0

// The main function of the tests whose ranks are processes.
#include <sched.h>
#include <sys/mount.h>

#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

constexpr char kOwnHost[] = "TEST_OWN_HOST";

std::vector<RankProgram> AllPrograms() {
  std::vector<RankProgram> all;
  for (const auto programs : {CollectivesPrograms, ElasticGpuPrograms, ElasticPrograms, FailurePrograms, ForkPrograms,
                              GpuFailurePrograms, JobPrograms, MismatchPrograms, OperationsPrograms, OptimizerPrograms,
                              ReformPrograms, RestartPrograms, StartupPrograms, StopPrograms}) {
    all.insert(all.end(), programs().begin(), programs().end());
  }
  return all;
}

}  // namespace

ProcessJob OverTcp(const std::vector<std::pair<std::string, std::string>>& variables) {
  ProcessJob job = {.env = {{"RONDA_BACKEND", "tcp"}, {"RONDA_MASTER_PORT", FreePort()}}};
  job.env.insert(job.env.end(), variables.begin(), variables.end());
  return job;
}

ProcessJob AHostARank() { return OverTcp({{kOwnHost, "1"}}); }

void MoveToAHostOfItsOwnIfAsked() {
  if (std::getenv(kOwnHost) == nullptr) return;
  ASSERT_EQ(unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr), 0);
}

}  // namespace ronda::testing

int main(int argc, char** argv) { return ronda::testing::RankProgramMain(argc, argv, ronda::testing::AllPrograms()); }
