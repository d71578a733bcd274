// SPDX-License-Identifier: Apache-2.0

#include "client/rank_claim.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns rank `rank` of a job that only this test uses.
JobEnvironment RankOf(const char* name, int rank) {
  JobEnvironment job;
  job.rank = rank;
  job.size = 2;
  job.job_id = absl::StrCat(name, "-", getpid());
  job.source = "rondarun";
  return job;
}

JobEnvironment At(const char* address, int port) {
  JobEnvironment job = RankOf("", 0);
  job.job_id = "";
  job.master_address = address;
  job.master_port = port;
  return job;
}

TEST(RankClaimTest, SecondProcessOfARankIsToldWhichIsTheFirst) {
  RankClaim first, second;
  ASSERT_TRUE(first.Acquire(RankOf("twice", 1)).ok());
  const absl::Status refused = second.Acquire(RankOf("twice", 1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(absl::StrCat("rank 1 of this job is process ", getpid(), " already")),
                    HasSubstr("start each rank once")));
}

TEST(RankClaimTest, AProcessThatARankHasStartedIsToldSo) {
  RankClaim claim;
  ASSERT_TRUE(claim.Acquire(RankOf("child", 1)).ok());
  const JobEnvironment job = RankOf("child", 1);
  const std::string wanted = absl::StrCat("was started by rank 1 (process ", getpid(), "), and is no rank itself");
  const pid_t child = fork();
  if (child == 0) {
    // The grandchild's parent process is not a rank.
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      RankClaim of_child;
      const absl::Status refused = of_child.Acquire(job);
      _exit(absl::IsFailedPrecondition(refused) && absl::StrContains(refused.message(), wanted) ? 0 : 1);
    }
    int status = 1;
    waitpid(grandchild, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RankClaimTest, ARankWhoseChildHasTakenItsPlaceIsToldSo) {
  const JobEnvironment job = RankOf("quick-child", 1);
  int taken[2];
  ASSERT_EQ(pipe(taken), 0);
  const pid_t child = fork();
  if (child == 0) {
    // The grandchild's parent process is not a rank.
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      static RankClaim of_child;
      const pid_t self = getpid();
      if (!of_child.Acquire(job).ok() || write(taken[1], &self, sizeof(self)) != sizeof(self)) _exit(1);
      pause();
    }
    waitpid(grandchild, nullptr, 0);
    _exit(0);
  }
  close(taken[1]);
  pid_t holder = 0;
  ASSERT_EQ(read(taken[0], &holder, sizeof(holder)), static_cast<ssize_t>(sizeof(holder)));
  RankClaim claim;
  const absl::Status refused = claim.Acquire(job);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(absl::StrCat("process ", holder, ", which this process (", getpid(), ") has started, ")),
                    HasSubstr("has become rank 1 of this job before it could"), HasSubstr("if __name__ ==")));
  kill(holder, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(taken[0]);
}

TEST(RankClaimTest, OtherRanksJobsAndEpochsAreOthers) {
  RankClaim first, rank, job, epoch;
  ASSERT_TRUE(first.Acquire(RankOf("others", 0)).ok());
  EXPECT_TRUE(rank.Acquire(RankOf("others", 1)).ok());
  EXPECT_TRUE(job.Acquire(RankOf("another", 0)).ok());
  JobEnvironment next = RankOf("others", 0);
  next.epoch = 1;
  EXPECT_TRUE(epoch.Acquire(next).ok());
}

TEST(RankClaimTest, AJobWithoutANameIsKnownByItsAddress) {
  RankClaim first, second, elsewhere;
  ASSERT_TRUE(first.Acquire(At("10.0.0.1", getpid())).ok());
  EXPECT_FALSE(second.Acquire(At("10.0.0.1", getpid())).ok());
  EXPECT_TRUE(elsewhere.Acquire(At("10.0.0.2", getpid())).ok());
}

TEST(RankClaimTest, JobsThatNeedNoneClaimNothing) {
  RankClaim first, second;
  JobEnvironment alone = RankOf("alone", 0);
  alone.size = 1;
  EXPECT_TRUE(first.Acquire(alone).ok());
  EXPECT_TRUE(second.Acquire(alone).ok());
  EXPECT_TRUE(first.Acquire(At("", 0)).ok());
  EXPECT_TRUE(second.Acquire(At("", 0)).ok());
}

TEST(RankClaimTest, ReleasedClaimIsAnothers) {
  RankClaim first, second;
  ASSERT_TRUE(first.Acquire(RankOf("released", 1)).ok());
  EXPECT_TRUE(first.Acquire(RankOf("released", 1)).ok()) << "its own is no other";
  first.Release();
  EXPECT_TRUE(second.Acquire(RankOf("released", 1)).ok());
}

TEST(RankClaimTest, AForkedChildDoesNotKeepIt) {
  RankClaim claim, next;
  ASSERT_TRUE(claim.Acquire(RankOf("forked", 1)).ok());
  int left[2];
  ASSERT_EQ(pipe(left), 0);
  const pid_t child = fork();
  if (child == 0) {
    claim.LeaveToParent();
    if (write(left[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(left[0], &byte, 1), 1);
  claim.Release();
  EXPECT_TRUE(next.Acquire(RankOf("forked", 1)).ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(left[0]);
  close(left[1]);
}

TEST(RankClaimTest, AProcessThatIsKilledLeavesNone) {
  RankClaim next;
  const JobEnvironment job = RankOf("killed", 1);
  const pid_t child = fork();
  if (child == 0) {
    static RankClaim claim;
    if (claim.Acquire(job).ok()) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(next.Acquire(job).ok());
}

}  // namespace
}  // namespace ronda
