// What tests across hosts share.
#ifndef RONDA_TESTS_HOSTS_HOSTS_SUITE_H_
#define RONDA_TESTS_HOSTS_HOSTS_SUITE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/hosts/network_hosts.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {

// A test across hosts; skipped, with the reason, where there can be none.
class HostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status available = NetworkHosts::Available();
    if (!available.ok()) GTEST_SKIP() << available.message();
    if (!HasMpirun(MpiFlavor::kOpenMpi)) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  }

  // nullptr after a test failure.
  static std::unique_ptr<NetworkHosts> MakeHosts(const NetworkHosts::Options& options) {
    absl::StatusOr<std::unique_ptr<NetworkHosts>> hosts = NetworkHosts::Create(options);
    EXPECT_TRUE(hosts.ok()) << hosts.status();
    return hosts.ok() ? *std::move(hosts) : nullptr;
  }

  // Ronda finds the plugin for Open MPI, and says which backend it has chosen.
  static HostsJob RondaJob(std::vector<int> slots, std::vector<std::string> argv) {
    const std::string plugin = absl::StrCat("runtime/mpi/", PluginName(MpiFlavor::kOpenMpi));
    return {.slots = std::move(slots),
            .argv = std::move(argv),
            .env = {{"RONDA_MPI_PLUGIN", std::filesystem::absolute(plugin)}, {"RONDA_LOG_LEVEL", "info"}}};
  }

  // Every rank runs a program of this test's binary, which begins with RankProgramMain.
  static HostsJob RankProgramJob(std::vector<int> slots, absl::string_view program) {
    return RondaJob(std::move(slots),
                    {std::filesystem::read_symlink("/proc/self/exe"), absl::StrCat("--rank_program=", program)});
  }
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_HOSTS_HOSTS_SUITE_H_
