// SPDX-License-Identifier: Apache-2.0

#include "tests/hosts/network_hosts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NetworkHostsTest : public HostsTest {
 protected:
  // Runs a command on a host through the agent. Returns its result.
  static ProcessResult On(const NetworkHosts& hosts, int host, const std::string& command) {
    return RunProcesses({.argv = {hosts.agent(), hosts.NameOf(host), command}}).ranks.front();
  }

  static std::string Shell(const std::string& command) {
    return RunProcesses({.argv = {"/bin/sh", "-c", command}}).ranks.front().output;
  }
};

TEST_F(NetworkHostsTest, HostsHaveNamesAndSharedMemoryOfTheirOwn) {
  const auto hosts = MakeHosts({.count = 2});
  ASSERT_NE(hosts, nullptr);
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(On(*hosts, host, "hostname; ls /dev/shm").output, hosts->NameOf(host) + "\n");
  }
}

TEST_F(NetworkHostsTest, CommandsAreReadByTheShellThereAndSeeNoVariablesOfTheCaller) {
  const auto hosts = MakeHosts({.count = 1});
  ASSERT_NE(hosts, nullptr);
  const ProcessResult result = On(*hosts, 0, "echo \"two  words\" ${RONDA_RANK:-unset}; exit 7");
  EXPECT_EQ(result.output, "two  words unset\n");
  EXPECT_EQ(result.exit_code, 7);
}

TEST_F(NetworkHostsTest, MpirunStartsRanksOnEveryHost) {
  const auto hosts = MakeHosts({.count = 2});
  ASSERT_NE(hosts, nullptr);
  const ProcessResult result =
      RunAcross(*hosts, {.slots = {1, 2},
                         .argv = {"/bin/sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK on $(hostname) with $TEST_SAYING"},
                         .env = {{"TEST_SAYING", "greetings"}}});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr(absl::StrCat("rank 0 on ", hosts->NameOf(0), " with greetings")),
                                   HasSubstr(absl::StrCat("rank 1 on ", hosts->NameOf(1), " with greetings")),
                                   HasSubstr(absl::StrCat("rank 2 on ", hosts->NameOf(1), " with greetings"))));
}

TEST_F(NetworkHostsTest, CablesCanBePulledAndRatesLimited) {
  const auto hosts = MakeHosts({.count = 2});
  ASSERT_NE(hosts, nullptr);
  const std::string state = absl::StrCat("ip -n ", hosts->NameOf(1), " link show eth0");
  ASSERT_EQ(hosts->CutOff(1), absl::OkStatus());
  EXPECT_THAT(Shell(state), HasSubstr("NO-CARRIER"));
  ASSERT_EQ(hosts->Reconnect(1), absl::OkStatus());
  EXPECT_THAT(Shell(state), Not(HasSubstr("NO-CARRIER")));
  ASSERT_EQ(hosts->LimitRate(100), absl::OkStatus());
  EXPECT_THAT(Shell(absl::StrCat("PATH=$PATH:/usr/sbin:/sbin; tc -n ", hosts->NameOf(0), " qdisc show dev eth0")),
              HasSubstr("rate 100Mbit"));
}

TEST_F(NetworkHostsTest, KilledTestsLeaveNoNetworkBehind) {
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  const std::string leftover = absl::StrCat("ronda-", dead, "-h1");
  Shell(absl::StrCat("ip netns add ", leftover));
  ASSERT_THAT(Shell("ip netns list"), HasSubstr(leftover));
  auto hosts = MakeHosts({.count = 2});
  ASSERT_NE(hosts, nullptr);
  EXPECT_THAT(Shell("ip netns list"), AllOf(Not(HasSubstr(leftover)), HasSubstr(hosts->NameOf(1))));
  const std::string name = hosts->NameOf(1);
  hosts.reset();
  EXPECT_THAT(Shell("ip netns list"), Not(HasSubstr(name)));
  EXPECT_THAT(Shell("ip link"), Not(HasSubstr(absl::StrCat("rb", getpid()))));
}

}  // namespace
}  // namespace ronda::testing
