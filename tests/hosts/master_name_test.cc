// SPDX-License-Identifier: Apache-2.0

// Tests jobs whose MASTER_ADDR is a name that resolves differently on each host.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

// Ranks 0 and 1 are on the first host, and rank 2 is on the second host.
class MasterNameTest : public HostsTest {
 protected:
  void SetUp() override {
    HostsTest::SetUp();
    if (IsSkipped()) return;
    hosts_ = MakeHosts({.count = 2});
    ASSERT_NE(hosts_, nullptr);
  }

  // Starts a job, as the user of a cluster would, whose ranks look up "trainer" in their host's file. Expects that the
  // ranks connect and complete an allreduce.
  void ExpectRanksMeet(const std::vector<std::string>& first_host, const std::vector<std::string>& second_host) const {
    const std::string first = absl::StrCat(hosts_->NameOf(0), " ", WriteHostsFile(hosts_->NameOf(0), first_host), " 2");
    const std::string second =
        absl::StrCat(hosts_->NameOf(1), " ", WriteHostsFile(hosts_->NameOf(1), second_host), " 1");
    const std::string command = absl::StrCat(
        "mount --bind $2 /etc/hosts && RONDA_RANK=$RONDA_RANK RONDA_SIZE=3 RONDA_LOCAL_SIZE=$3 RONDA_LOCAL_RANK=",
        "$((RONDA_RANK % 2)) RONDA_JOB_SECRET=sesame RONDA_START_TIMEOUT=10s RONDA_MASTER_ADDR=trainer ",
        "RONDA_MASTER_PORT=29500 RONDA_HOSTS_PLUGIN=", HostsPlugin(), " ",
        std::filesystem::read_symlink("/proc/self/exe").string(), " --rank_program=start");
    const JobResult job =
        RunProcesses({.size = 3,
                      .argv = {"/bin/sh", "-c",
                               absl::StrCat("set -- ", first, " ", first, " ", second, "; shift $((3 * RONDA_RANK)); ",
                                            "exec ", hosts_->agent(), " $1 \"", command, "\"")},
                      .timeout = absl::Seconds(40)});
    for (const ProcessResult& rank : job.ranks) EXPECT_EQ(rank.exit_code, 0) << rank.output;
  }

  std::unique_ptr<NetworkHosts> hosts_;
};

TEST_F(MasterNameTest, RankZerosHostResolvesItsNameToLoopback) {
  ExpectRanksMeet({"127.0.1.1"}, {hosts_->AddressOf(0)});
}

TEST_F(MasterNameTest, TheNameHasTwoAddresses) {
  const std::string first = hosts_->AddressOf(0);
  const std::string second = first.substr(0, first.rfind('.')) + ".77";
  ASSERT_EQ(hosts_->RunOn(0, absl::StrCat("ip addr add ", second, "/24 dev eth0")), absl::OkStatus());
  ExpectRanksMeet({"127.0.1.1", second}, {second});
  ExpectRanksMeet({first}, {second, first});
  ExpectRanksMeet({second}, {first, second});
}

}  // namespace
}  // namespace ronda::testing
