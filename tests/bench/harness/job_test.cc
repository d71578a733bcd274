// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/harness/job.h"

namespace ronda::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobFlagsTest : public testing::Test {
 protected:
  JobFlagsTest() { AddJobFlags(&flags_, &options_); }

  // Parses `words`. Returns the exit code if the command must then end, and -1 if it continues.
  int Parse(const std::vector<std::string>& words) {
    int exit_code = -1;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const bool goes_on = ParseOrExplain(&flags_, words, &exit_code);
    EXPECT_EQ(goes_on, exit_code == -1);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return exit_code;
  }

  Flags flags_{"example", "Does nothing."};
  JobOptions options_;
  std::string out_;
  std::string err_;
};

TEST_F(JobFlagsTest, AllFlagsCanBeSet) {
  EXPECT_EQ(Parse({"-np", "4", "--peer", "mpi,gloo", "--peer-setting", "best", "--bind", "core", "--json", "a.json",
                   "--csv", "a.csv"}),
            -1);
  EXPECT_EQ(options_.ranks, std::vector<int>{4});
  EXPECT_EQ(options_.peers, (std::vector<std::string>{"mpi", "gloo"}));
  EXPECT_EQ(options_.peer_setting, "best");
  EXPECT_EQ(options_.binding, "core");
  EXPECT_EQ(options_.files.json, "a.json");
  EXPECT_EQ(options_.files.csv, "a.csv");
  EXPECT_EQ(out_ + err_, "");
}

TEST_F(JobFlagsTest, TwoRanksAndNoPeersAreTheDefault) {
  EXPECT_EQ(Parse({}), -1);
  EXPECT_EQ(options_.ranks, std::vector<int>{2});
  EXPECT_TRUE(options_.peers.empty());
  EXPECT_EQ(options_.binding, "launcher");
}

TEST_F(JobFlagsTest, RanksMayBeAList) {
  EXPECT_EQ(Parse({"-np", "2,4,8"}), -1);
  EXPECT_EQ(options_.ranks, (std::vector<int>{2, 4, 8}));
  EXPECT_EQ(Parse({"-np", "2,0"}), 2);
  EXPECT_EQ(Parse({"-np", "2,,4"}), 2);
}

TEST_F(JobFlagsTest, AMistakeIsExplainedOnStderr) {
  EXPECT_EQ(Parse({"--peer", "mpi,horovod"}), 2);
  EXPECT_EQ(err_,
            "ronda-bench: --peer takes a list of mpi (Open MPI), mpich and gloo; got \"mpi,horovod\"\n"
            "usage: ronda-bench example [OPTION]...\n       with --help it explains its options\n");
  EXPECT_EQ(out_, "");
}

TEST_F(JobFlagsTest, HelpGoesToStdoutAndIsNoFailure) {
  EXPECT_EQ(Parse({"-h"}), 0);
  EXPECT_EQ(out_, flags_.Help());
  EXPECT_EQ(err_, "");
}

// Returns the backends that --backend=`text` selects.
std::vector<std::string> Read(const std::string& text, absl::Status* status) {
  std::vector<std::string> backends = {kShm};
  Flags flags("test", "");
  AddBackendFlag(&flags, "Backends", &backends);
  *status = flags.Parse({"--backend", text});
  return backends;
}

TEST(BackendFlagTest, InterleavedBackendsAreAListAndTheOthersStandAlone) {
  absl::Status status;
  EXPECT_THAT(Read("inprocess,shm", &status), ElementsAre(kInProcess, kShm));
  EXPECT_THAT(Read("all", &status), ElementsAre(kShm, kInProcess));
  EXPECT_THAT(Read("hierarchical-tcp", &status), ElementsAre("hierarchical-tcp"));
  EXPECT_TRUE(status.ok()) << status;
  for (const char* mistake : {"shm,mpi", "mpi,tcp", "nccl", ""}) {
    EXPECT_THAT(Read(mistake, &status), ElementsAre(kShm));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const char* name : {"one of ", "mpi", "tcp", "hierarchical"}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
  }
}

TEST(BackendFlagTest, OnlyABackendThatStandsAloneIsTheJobs) {
  EXPECT_EQ(JobBackend({kShm, kInProcess}), "");
  EXPECT_EQ(JobBackend({"hierarchical-mpi"}), "hierarchical-mpi");
}

}  // namespace
}  // namespace ronda::bench
