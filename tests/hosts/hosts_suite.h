// SPDX-License-Identifier: Apache-2.0

// Fixtures of the tests on several hosts, and the programs of their ranks.
#ifndef RONDA_TESTS_HOSTS_HOSTS_SUITE_H_
#define RONDA_TESTS_HOSTS_HOSTS_SUITE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/hosts/network_hosts.h"
#include "tests/hosts/ssh_servers.h"
#include "tests/multiprocess/launcher_harness.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {

// The rank programs of each test file. The tests run them in child processes of the same binary.
std::vector<RankProgram> AcrossHostsPrograms();
std::vector<RankProgram> ElasticHostsPrograms();
std::vector<RankProgram> HostsFailurePrograms();
std::vector<RankProgram> MonitorHostsPrograms();
std::vector<RankProgram> SshJobPrograms();

// A test on several hosts. It is skipped, with the reason, if this machine cannot simulate hosts or lacks Open MPI.
class HostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status available = NetworkHosts::Available();
    if (!available.ok()) GTEST_SKIP() << available.message();
    if (!HasMpirun(MpiFlavor::kOpenMpi)) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  }

  // Creates hosts. If that fails, fails the test and returns nullptr.
  static std::unique_ptr<NetworkHosts> MakeHosts(const NetworkHosts::Options& options) {
    absl::StatusOr<std::unique_ptr<NetworkHosts>> hosts = NetworkHosts::Create(options);
    EXPECT_TRUE(hosts.ok()) << hosts.status();
    return hosts.ok() ? *std::move(hosts) : nullptr;
  }

  // Writes a replacement for a host's /etc/hosts in which "trainer" has these addresses. Returns its path.
  static std::string WriteHostsFile(const std::string& host_name, const std::vector<std::string>& addresses) {
    const std::string path = absl::StrCat(::testing::TempDir(), "/hosts-", host_name);
    std::ofstream file(path);
    file << "127.0.0.1 localhost\n";
    for (const std::string& address : addresses) file << address << " trainer\n";
    return path;
  }

  // Returns the absolute path of the plugin, which is the same on all hosts.
  static std::string HostsPlugin() { return std::filesystem::absolute("runtime/net/libronda_hosts.so"); }

  // Returns a job with the variables that make Ronda find its plugins and log which backend it has chosen.
  static HostsJob RondaJob(std::vector<int> slots, std::vector<std::string> argv) {
    const std::string plugin = absl::StrCat("runtime/mpi/", PluginName(MpiFlavor::kOpenMpi));
    return {.slots = std::move(slots),
            .argv = std::move(argv),
            .env = {{"RONDA_MPI_PLUGIN", std::filesystem::absolute(plugin)},
                    {"RONDA_HOSTS_PLUGIN", HostsPlugin()},
                    {"RONDA_LOG_LEVEL", "info"}}};
  }

  // Returns a job in which every rank runs a rank program of this test's binary.
  static HostsJob RankProgramJob(std::vector<int> slots, absl::string_view program) {
    return RondaJob(std::move(slots),
                    {std::filesystem::read_symlink("/proc/self/exe"), absl::StrCat("--rank_program=", program)});
  }
};

using Words = std::vector<std::string>;

inline Words Joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A test of rondarun with two hosts.
class LauncherHostsTest : public HostsTest {
 protected:
  void SetUp() override {
    HostsTest::SetUp();
    if (IsSkipped()) return;
    hosts_ = MakeHosts({.count = 2});
    ASSERT_NE(hosts_, nullptr);
    directory_ = absl::StrCat(::testing::TempDir(), "/launcher-", getpid());
    std::filesystem::create_directories(directory_);
    UseMpirun(MpiFlavor::kOpenMpi);
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  // Makes rondarun use the mpirun of this MPI.
  void UseMpirun(MpiFlavor flavor) const {
    const std::string path = directory_ + "/mpirun";
    std::ofstream(path) << "#!/bin/sh\nexec " << PathOfMpirun(flavor) << " \"$@\"\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  // Returns the arguments that make mpirun use the hosts' network.
  Words OnTheirNetwork(MpiFlavor flavor) const {
    if (flavor == MpiFlavor::kMpich) return {"--mpi-args", "-iface " + hosts_->interface()};
    std::string words = "--mca btl self,vader,tcp";
    for (const auto& [name, value] : hosts_->MpiNetwork()) absl::StrAppend(&words, " --mca ", name, " ", value);
    return {"--mpi-args", words};
  }

  LauncherRun::Options Options(const std::string& client_directory = "/") const {
    return {.environment = {absl::StrCat("PATH=", directory_, ":", client_directory, ":", getenv("PATH"))}};
  }

  // Returns the pids of the processes on a host.
  std::string ProcessesOn(int host) const {
    const std::string command = "PATH=$PATH:/usr/sbin:/sbin; ip netns pids " + hosts_->NameOf(host);
    return RunProcesses({.argv = {"/bin/sh", "-c", command}}).ranks.front().output;
  }

  std::unique_ptr<NetworkHosts> hosts_;
  std::string directory_;
};

// Like LauncherHostsTest, but the launcher reaches the hosts through OpenSSH.
class SshHostsTest : public LauncherHostsTest {
 protected:
  void SetUp() override {
    LauncherHostsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const absl::Status available = SshServers::Available();
    if (!available.ok()) GTEST_SKIP() << available.message();
    auto servers = SshServers::Start(*hosts_);
    ASSERT_TRUE(servers.ok()) << servers.status();
    servers_ = *std::move(servers);
  }

  // Returns arguments for two ranks on each host. They refer to the hosts by address.
  Words TwoOnEach(const std::string& identity) const {
    return {"-np",
            "4",
            "-H",
            absl::StrCat(hosts_->AddressOf(0), ":2,", hosts_->AddressOf(1), ":2"),
            "--ssh-port",
            absl::StrCat(servers_->port()),
            "--ssh-identity-file",
            identity,
            "--start-timeout",
            "20",
            "--grace-period",
            "1"};
  }
  Words TwoOnEach() const { return TwoOnEach(servers_->identity()); }

  LauncherRun::Options SshOptions() const { return Options(servers_->client_directory()); }

  std::unique_ptr<SshServers> servers_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_HOSTS_HOSTS_SUITE_H_
