// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness/job.h"
#include "bench/harness/output.h"
#include "bench/harness/results.h"
#include "bench/harness/temporary_folder.h"
#include "runtime/base/files.h"

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

TEST_F(JobFlagsTest, FolderThatDoesNotExistIsNamedBeforeTheRun) {
  EXPECT_EQ(Parse({"--json", "none/a.json"}), 2);
  EXPECT_THAT(err_, HasSubstr("--json takes the name of a file in a folder that exists; got \"none/a.json\""));
  EXPECT_EQ(Parse({"--csv", testing::TempDir()}), 2);
  EXPECT_EQ(Parse({"--csv", testing::TempDir() + "/a.csv"}), -1);
  setenv("RONDA_RANK", "1", 1);
  setenv("RONDA_SIZE", "2", 1);
  setenv("RONDA_JOB_ID", "job", 1);
  Flags flags_of_other_rank("example", "Does nothing.");
  AddFileFlags(&flags_of_other_rank, &options_.files);
  for (const char* name : {"RONDA_RANK", "RONDA_SIZE", "RONDA_JOB_ID"}) unsetenv(name);
  EXPECT_TRUE(flags_of_other_rank.Parse({"--json", "none/a.json"}).ok()) << "rank 0 writes the file";
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

// The launcher's first job has one row, and removes the launcher. So the second job cannot be started.
TEST(RunJobTest, EarlierResultsAreWrittenIfALaterJobCannotBeStarted) {
  const std::unique_ptr<TemporaryFolder> folder = *TemporaryFolder::Create();
  const std::string launcher = folder->PathOf("rondarun");
  const std::string lines = EncodeLine({.kind = OutputMessage::Kind::kRow, .text = EncodeRow({{"op", "first"}})}) +
                            EncodeLine({.kind = OutputMessage::Kind::kDistances, .distances = {1, 2}});
  std::ofstream(launcher) << "#!/bin/sh\nprintf '%s' '" << lines << "' > \"$" << kOutputVariable << "\"\nrm \"$0\"\n";
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  JobRequest request = {.command = "example"};
  request.options.ranks = {2, 3};
  request.options.files.json = folder->PathOf("results.json");
  EXPECT_EXIT(
      {
        setenv("PATH", (folder->path() + ":/usr/bin:/bin").c_str(), 1);
        _exit(RunJob(request, [](Rank&) { return absl::OkStatus(); }));
      },
      ::testing::ExitedWithCode(1), "rondarun is not here");
  EXPECT_THAT(ReadFile(request.options.files.json).value_or("no file"), HasSubstr("first"));
}

TEST(BackendFlagTest, OnlyABackendThatStandsAloneIsTheJobs) {
  EXPECT_EQ(JobBackend({kShm, kInProcess}), "");
  EXPECT_EQ(JobBackend({"hierarchical-mpi"}), "hierarchical-mpi");
}

}  // namespace
}  // namespace ronda::bench
