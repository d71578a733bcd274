// SPDX-License-Identifier: Apache-2.0

// Tests jobs whose ranks rondarun starts over OpenSSH.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/mpi/mpi_session.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Joined;
using testing::Words;

// -- Programs of ranks --

void SumOnce() {
  init();
  std::vector<float> data(1000, static_cast<float>(rank() + 1));
  allreduce(tensor("data", data), {Op::Sum});
  EXPECT_EQ(data.back(), static_cast<float>(size() * (size() + 1) / 2));
  shutdown();
}

void SumForEver() {
  init();
  std::vector<float> data(1000, 1.0f);
  for (int step = 0; allreduce_async(tensor("data", data), {Op::Average}).wait().ok(); ++step) {
    if (step == 20) std::cout << "pid" << rank() << "=" << getpid() << std::endl;
  }
}

// -- The tests --

class SshJobTest : public testing::SshHostsTest {
 protected:
  static Words Program(const std::string& name) {
    return {std::filesystem::read_symlink("/proc/self/exe"), absl::StrCat("--rank_program=", name)};
  }

  LauncherRun::Options JobOptions() const {
    const std::string plugin = absl::StrCat("runtime/mpi/", PluginName(MpiFlavor::kOpenMpi));
    LauncherRun::Options options = SshOptions();
    options.environment.insert(
        options.environment.end(),
        {absl::StrCat("RONDA_MPI_PLUGIN=", std::filesystem::absolute(plugin).string()), "RONDA_LOG_LEVEL=info"});
    return options;
  }
};

TEST_F(SshJobTest, RanksOfOneHostAddUpInItsSharedMemory) {
  LauncherRun run(Joined({"-np", "2", "-H", absl::StrCat(hosts_->AddressOf(1), ":2"), "--ssh-port",
                          absl::StrCat(servers_->port()), "-i", servers_->identity(), "--launcher", "ssh"},
                         Program("sum_once")),
                  JobOptions());
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("data goes over shm"));
}

TEST_F(SshJobTest, RanksOfTwoHostsAddUpUnderMpirun) {
  LauncherRun run(Joined(Joined(TwoOnEach(), OnTheirNetwork(MpiFlavor::kOpenMpi)), Program("sum_once")), JobOptions());
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("data goes over hierarchical"));
}

// Tests --launcher ssh, which is also the default if there is no mpirun.
TEST_F(SshJobTest, RanksOfTwoHostsAddUpWithoutMpi) {
  LauncherRun::Options options = SshOptions();
  options.environment.emplace_back("RONDA_LOG_LEVEL=info");
  LauncherRun run(Joined(Joined(TwoOnEach(), {"--launcher", "ssh"}), Program("sum_once")), options);
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("data goes over hierarchical-tcp; of hierarchical-tcp (score"));
  EXPECT_THAT(run.err(), HasSubstr("no launcher of MPI has started the ranks"));
}

TEST_F(SshJobTest, RankThatIsKilledWithoutMpiEndsTheJob) {
  LauncherRun run(Joined(Joined(TwoOnEach(), {"--launcher", "ssh"}), Program("sum_for_ever")), SshOptions());
  for (int rank = 0; rank < 4; ++rank) run.WaitForOut(absl::StrCat("pid", rank, "="));
  kill(NumberAfter(run.out(), "pid3="), SIGKILL);
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  EXPECT_THAT(run.err(), HasSubstr("rank 3"));
}

TEST_F(SshJobTest, RanksThatAreKilledLeaveNoSharedMemory) {
  LauncherRun run(Joined(Joined(TwoOnEach(), OnTheirNetwork(MpiFlavor::kOpenMpi)), Program("sum_for_ever")),
                  JobOptions());
  for (int rank = 0; rank < 4; ++rank) run.WaitForOut(absl::StrCat("pid", rank, "="));
  for (int rank = 0; rank < 4; ++rank) kill(NumberAfter(run.out(), absl::StrCat("pid", rank, "=")), SIGKILL);
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  const std::string on_each = "ls -d /dev/shm/ronda-* 2>&1 | grep -v 'No such file' >&2; true";
  LauncherRun look(Joined(Joined(TwoOnEach(), {"--launcher", "ssh"}), {"sh", "-c", on_each}), JobOptions());
  EXPECT_EQ(look.Finish(), 0);
  EXPECT_THAT(look.err(), IsEmpty());
}

}  // namespace

std::vector<testing::RankProgram> testing::SshJobPrograms() {
  return {{"sum_once", SumOnce}, {"sum_for_ever", SumForEver}};
}

}  // namespace ronda
