// SPDX-License-Identifier: Apache-2.0

// Tests rondarun --check. Scripts stand in for rondarun and ssh, and all hosts are this host.
#include "programs/rondarun/preflight/preflight.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/rondarun/preflight/host_probe.h"
#include "runtime/base/clock.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Script(const std::string& name, const std::string& body) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << "#!/bin/sh\n" << body;
  EXPECT_EQ(chmod(path.c_str(), 0700), 0);
  return path;
}

// Returns a script that stands in for rondarun --probe: it prints facts about its host, and answers each question.
std::string FakeProgram() {
  return Script("rondarun", R"([ "$1" = --probe ] || exit 9
echo "Welcome."
echo "version=0.4.0"; echo "mpi=Open MPI 4.1.4"; echo "shm_free=1000000000"; echo "cores=64"
echo "address=$2"; echo "port=4000"; echo .
while read -r question rest; do
  if [ "$question" = clock ]; then date +%s%N; else echo "ok"; fi
done
)");
}

// Returns a script that stands in for ssh, and runs commands on this host. Host h2 has an older Ronda, h3 cannot
// connect to other hosts, h4 allows no login, the probe on h5 ends too early, and h8 has a different MPI.
std::string FakeAgent() {
  return Script("agent", R"(case "$1" in
  h2) exec sh -c "$2" | sed -u 's/^version=.*/version=0.3.0/' ;;
  h3) exec sh -c "$2" | sed -u 's/^ok$/cannot connect: No route to host/' ;;
  h4) echo "h4: Permission denied (publickey)." >&2; exit 255 ;;
  h5) echo "version=0.4.0" ;;
  h8) exec sh -c "$2" | sed -u 's/^mpi=.*/mpi=MPICH 4.0.2/' ;;
  *) exec sh -c "$2" ;;
esac
)");
}

// Returns this program's absolute path. A shell would resolve /proc/self/exe to itself.
std::string OwnPath() { return std::filesystem::read_symlink("/proc/self/exe"); }

LaunchOptions OnHosts(const std::vector<std::string>& hosts) {
  LaunchOptions options{.action = LaunchOptions::Action::kPreflight};
  for (const std::string& host : hosts) options.hosts.push_back({.host = host, .slots = 2});
  options.remote.agent = FakeAgent();
  options.remote.network_interfaces = {"lo"};
  return options;
}

PreflightReport Check(const std::vector<std::string>& hosts) {
  return CheckHosts(OnHosts(hosts), FakeProgram(), {"h1"});
}

TEST(PreflightTest, HostsThatAreAlikePass) {
  const PreflightReport report = Check({"h1", "h6", "h7"});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.text, HasSubstr("these 3 hosts can run a job together"));
}

TEST(PreflightTest, WithoutHostsThisOneIsChecked) {
  LaunchOptions options = OnHosts({});
  options.rank_count = 4;
  const PreflightReport report = CheckHosts(options, FakeProgram(), {"h1"});
  EXPECT_THAT(report.text, HasSubstr("\nlocalhost  0.4.0"));
  EXPECT_THAT(report.problems, IsEmpty());
}

TEST(PreflightTest, TheHostWithAnotherVersionIsNamed) {
  EXPECT_THAT(Check({"h1", "h2", "h6"}).problems, ElementsAre("h2 has Ronda 0.3.0, the others 0.4.0"));
}

TEST(PreflightTest, AHostThatDoesNotReachTheOthersIsNamed) {
  EXPECT_THAT(Check({"h1", "h3"}).problems, ElementsAre("h3 does not reach h1 (lo): cannot connect: No route to host"));
}

TEST(PreflightTest, ReasonOfASilentHostIsReported) {
  EXPECT_THAT(Check({"h1", "h4", "h5"}).problems, ElementsAre("h4 cannot be asked: h4: Permission denied (publickey).",
                                                              "h5 cannot be asked: it has ended without a word"));
}

TEST(PreflightTest, AnAgentThatIsNotThereIsTold) {
  LaunchOptions options = OnHosts({"h6"});
  options.remote.agent = "/nonexistent/agent";
  EXPECT_THAT(CheckHosts(options, FakeProgram(), {"h1"}).problems,
              ElementsAre(HasSubstr("h6 cannot be asked: cannot start /nonexistent/agent")));
}

// The test program itself also serves as `rondarun --probe`.
TEST(PreflightTest, RealProbesTellTheirFactsAndReachEachOther) {
  LaunchOptions options = OnHosts({"h1", "h6"});
  for (auto& host : options.hosts) host.slots = 0;
  const PreflightReport report = CheckHosts(options, OwnPath(), {"h1"});
  EXPECT_THAT(report.text, AllOf(HasSubstr("\nh1    " + std::string(kVersion) + "  127.0.0.1"),
                                 HasSubstr("\nh6    " + std::string(kVersion) + "  127.0.0.1")));
  EXPECT_THAT(report.text, Not(HasSubstr("does not reach")));
  EXPECT_THAT(report.text, Not(HasSubstr("cannot be asked")));
}

// Host h8 has a different MPI from h1.
TEST(PreflightTest, LauncherSshMakesMpiNoProblem) {
  LaunchOptions options = OnHosts({"h1", "h8"});
  EXPECT_THAT(CheckHosts(options, FakeProgram(), {"h1"}).problems,
              ElementsAre("h8 has MPICH 4.0.2, h1 Open MPI 4.1.4"));
  options.launcher = LaunchOptions::Launcher::kSsh;
  EXPECT_THAT(CheckHosts(options, FakeProgram(), {"h1"}).problems, IsEmpty());
  options.launcher = LaunchOptions::Launcher::kAutomatic;
  options.elastic = ElasticOptions{.min_ranks = 1, .max_ranks = 4};
  EXPECT_THAT(CheckHosts(options, FakeProgram(), {"h1"}).problems, IsEmpty());
}

// The probes on all hosts look for the plugin at the path in RONDA_HOSTS_PLUGIN, which the ranks get, too.
TEST(PreflightTest, RealProbesLookForThePluginsOfTheRanks) {
  const std::string plugin = std::getenv("RONDA_HOSTS_PLUGIN");
  ASSERT_EQ(setenv("RONDA_HOSTS_PLUGIN", "/nowhere/libronda_hosts.so", 1), 0);
  const PreflightReport report = CheckHosts(OnHosts({"h1", "h6"}), OwnPath(), {"h1"});
  ASSERT_EQ(setenv("RONDA_HOSTS_PLUGIN", plugin.c_str(), 1), 0);
  for (const char* host : {"h1", "h6"}) {
    EXPECT_THAT(report.problems, Contains(HasSubstr(std::string(host) + ": Ronda's plugin for several hosts cannot be "
                                                                        "loaded (/nowhere/libronda_hosts.so: ")));
  }
}

// A probe looks for the MPI plugin that matches its host's mpirun.
TEST(PreflightTest, AProbeLooksForThePluginOfItsMpirun) {
  const std::string folder = ::testing::TempDir() + "/bin";
  std::filesystem::create_directories(folder);
  Script("bin/mpirun", "echo 'mpirun (Open MPI) 4.1.4'\n");
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(setenv("PATH", (folder + ":" + path).c_str(), 1), 0);
  ASSERT_EQ(setenv("RONDA_MPI_PLUGIN", "/nowhere/libronda_mpi.so", 1), 0);
  const HostFacts without = LocalFacts();
  ASSERT_EQ(unsetenv("RONDA_MPI_PLUGIN"), 0);
  const HostFacts with = LocalFacts();
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(FactOr(without, fact::kMpi), "Open MPI 4.1.4");
  EXPECT_THAT(FactOr(without, fact::kNoMpiPlugin), AllOf(HasSubstr("(/nowhere/libronda_mpi.so: "),
                                                         HasSubstr("make install builds it where libopenmpi-dev")));
  EXPECT_EQ(FactOr(with, fact::kNoMpiPlugin), "");
}

TEST(PreflightTest, AProbeThatCannotReachAnAddressSaysSo) {
  const auto probe = ProbeClient::Start({"/proc/self/exe", kProbeWord, "lo"});
  ASSERT_TRUE(probe.ok()) << probe.status();
  const absl::Time deadline = SteadyNow() + absl::Seconds(60);
  HostFacts facts;
  for (std::string line; line != "."; ParseFact(line, &facts)) {
    const auto next = (*probe)->ReadLine(deadline);
    ASSERT_TRUE(next.ok()) << next.status();
    line = *next;
  }
  const auto answer_to = [&](const std::string& question) {
    (*probe)->Ask(question);
    return (*probe)->ReadLine(deadline).value_or("no answer");
  };
  EXPECT_EQ(answer_to("connect 127.0.0.1 " + FactOr(facts, fact::kPort)), "ok");
  EXPECT_THAT(answer_to("connect 127.0.0.1 1"), HasSubstr("refused"));
  EXPECT_EQ(answer_to("connect 127.0.0.1"), "unknown question");
  EXPECT_EQ(answer_to("connect 127.0.0.1 many"), "unknown question");
}

TEST(PreflightTest, AnInterfaceThatIsNotThereIsTold) {
  LaunchOptions options = OnHosts({"h1", "h6"});
  options.remote.network_interfaces = {"nonexistent0"};
  const PreflightReport report = CheckHosts(options, OwnPath(), {"h1"});
  EXPECT_THAT(report.problems, Contains(HasSubstr("h6 has no address for the others: ")));
}

TEST(ProbeClientTest, ReadsLinesAndTheEnd) {
  const auto probe = ProbeClient::Start({"sh", "-c", "read -r x; echo \"got $x\"; echo; printf last"});
  ASSERT_TRUE(probe.ok()) << probe.status();
  (*probe)->Ask("this");
  const absl::Time never = absl::InfiniteFuture();
  EXPECT_EQ((*probe)->ReadLine(never).value_or("none"), "got this");
  EXPECT_EQ((*probe)->ReadLine(never).value_or("none"), "");
  EXPECT_EQ((*probe)->ReadLine(never).status().code(), absl::StatusCode::kUnavailable) << "a line without its end";
  (*probe)->Ask("that");
}

TEST(ProbeClientTest, DoesNotWaitForEver) {
  const auto probe = ProbeClient::Start({"sleep", "1000"});
  ASSERT_TRUE(probe.ok()) << probe.status();
  EXPECT_EQ((*probe)->ReadLine(SteadyNow() + absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(HostProbeTest, KnowsItsHost) {
  const HostFacts facts = LocalFacts();
  EXPECT_EQ(FactOr(facts, fact::kVersion), kVersion);
  EXPECT_THAT(FactOr(facts, fact::kProgram), EndsWith("/preflight_test"));
  EXPECT_GE(NumberOf(facts, fact::kCores), 1);
  EXPECT_GT(NumberOf(facts, fact::kMemory), 1 << 20);
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == ronda::kProbeWord) {
    return ronda::RunProbe(std::vector<std::string>(argv + 2, argv + argc));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
