// SPDX-License-Identifier: Apache-2.0

// Tests rondarun on several hosts, over OpenSSH, and with hosts or machines that lack something.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/hosts_suite.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// -- Without a connection back --

// The job uses the interface "lo". The other hosts also have this interface, but cannot reach this host through it.
TEST_F(LauncherHostsTest, InterfaceThatLeadsElsewhereIsNoWaitForEver) {
  LauncherRun run(
      Joined({"-np", "2", "-H", absl::StrCat(hosts_->NameOf(0), ":1,", hosts_->NameOf(1), ":1"), "--launcher", "mpirun",
              "--launch-agent", hosts_->agent(), "--network-interfaces", "lo", "--start-timeout", "2"},
             {"sleep", "600"}),
      Options());
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.LastLine(), StartsWith(absl::StrCat("rondarun: ranks 0, 1 (hosts ", hosts_->NameOf(0), ", ",
                                                      hosts_->NameOf(1), ") were not started within 2s: ")));
  for (int host : {0, 1}) {
    WaitUntil([&] { return ProcessesOn(host).empty(); }, "the end of all that ran on a host");
  }
}

// -- OpenSSH --

Words WhereRanksAre() {
  return {"sh", "-c", "echo $(hostname) $((${RONDA_RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}))"};
}

void ExpectTwoRanksOnEach(const NetworkHosts& hosts, const LauncherRun& run) {
  const auto line = [&](int rank) { return absl::StrCat("[", rank, "]<stdout>: ", hosts.NameOf(rank / 2), " ", rank); };
  EXPECT_THAT(run.SortedOut(), ElementsAre(line(0), line(1), line(2), line(3)));
}

TEST_F(SshHostsTest, AgentsStartRanksOnEveryHost) {
  LauncherRun run(Joined(Joined(TwoOnEach(), {"--launcher", "ssh"}), WhereRanksAre()), SshOptions());
  EXPECT_EQ(run.Finish(), 0) << run.err();
  ExpectTwoRanksOnEach(*hosts_, run);
}

TEST_F(SshHostsTest, HydraStartsRanksOnEveryHost) {
  if (!HasMpirun(MpiFlavor::kMpich)) GTEST_SKIP() << "MPICH's mpirun is not installed";
  UseMpirun(MpiFlavor::kMpich);
  LauncherRun run(Joined(Joined(TwoOnEach(), OnTheirNetwork(MpiFlavor::kMpich)), WhereRanksAre()), SshOptions());
  EXPECT_EQ(run.Finish(), 0) << run.err();
  ExpectTwoRanksOnEach(*hosts_, run);
}

TEST_F(SshHostsTest, RefusedKeyIsSaidWithItsHost) {
  LauncherRun agents(Joined(TwoOnEach(servers_->foreign_identity()), {"--launcher", "ssh", "true"}), SshOptions());
  EXPECT_EQ(agents.Finish(), 1);
  EXPECT_THAT(agents.LastLine(), AllOf(StartsWith("rondarun: host 10."), HasSubstr("Permission denied (publickey")));
  LauncherRun mpirun(Joined(TwoOnEach(servers_->foreign_identity()), {"--launcher", "mpirun", "true"}), SshOptions());
  EXPECT_EQ(mpirun.Finish(), 1);
  EXPECT_THAT(Lines(mpirun.err()),
              ElementsAre(AllOf(StartsWith("rondarun: mpirun cannot start the ranks: root@10."),
                                HasSubstr("Permission denied (publickey"), HasSubstr("; rondarun --check -H 10."))));
}

TEST_F(SshHostsTest, UnknownHostIsSaidWithTheReason) {
  servers_->Forget(1);
  LauncherRun agents(Joined(TwoOnEach(), {"--launcher", "ssh", "sleep", "600"}), SshOptions());
  EXPECT_EQ(agents.Finish(), 1);
  EXPECT_EQ(agents.LastLine(), absl::StrCat("rondarun: host ", hosts_->AddressOf(1),
                                            ": the connection to its agent exited with code 255 (Host key verification "
                                            "failed.); rondarun --check -H ",
                                            hosts_->AddressOf(1), ":2 tells more"));
  LauncherRun mpirun(Joined(TwoOnEach(), {"--launcher", "mpirun", "true"}), SshOptions());
  EXPECT_EQ(mpirun.Finish(), 1);
  EXPECT_THAT(Lines(mpirun.err()),
              ElementsAre(AllOf(HasSubstr(absl::StrCat("key is known for [", hosts_->AddressOf(1), "]")),
                                HasSubstr(" Host key verification failed.; rondarun --check -H "))));
}

}  // namespace
}  // namespace ronda::testing
