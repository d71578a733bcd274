// SPDX-License-Identifier: Apache-2.0

// Tests how rondarun reacts to failed ranks, and what it reports.
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// Returns a pattern for rondarun's last line when rank `rank` is the one that failed. `end` says how.
std::string LastLineOf(int rank, const std::string& end) {
  return absl::StrCat("rondarun: rank ", rank, " \\(pid [0-9]+, host [^ ]+\\) ", end);
}

TEST(LauncherFailureTest, ExitCodeAndLastErrorOfTheRankAreReported) {
  LauncherRun run(Shell(4, "[ $RONDA_RANK != 2 ] || { echo first >&2; echo disk on fire >&2; echo >&2; exit 3; }"));
  EXPECT_EQ(run.Finish(), 3);
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(2, "exited with code 3; last error: \"disk on fire\"")));
}

TEST(LauncherFailureTest, PidInTheLastLineIsTheRanks) {
  LauncherRun run(Shell(1, "echo mypid=$$; exit 1"));
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_EQ(NumberAfter(run.LastLine(), "pid "), NumberAfter(run.out(), "mypid="));
}

TEST(LauncherFailureTest, SignalOfTheRankIsReported) {
  LauncherRun run(Shell(2, "[ $RONDA_RANK = 0 ] || kill -9 $$"));
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(1, "was killed by signal 9 \\(SIGKILL\\)")));
}

TEST(LauncherFailureTest, RanksThatRunOnAreTerminated) {
  LauncherRun run(Shell(3, absl::StrCat("trap 'echo terminated; exit 0' TERM; ", AwaitAllRanks(3),
                                        "if [ $RONDA_RANK = 1 ]; then exit 5; fi; while :; do sleep 0.05; done")));
  EXPECT_EQ(run.Finish(), 5);
  EXPECT_THAT(run.err(), HasSubstr("rondarun: a rank has failed; telling ranks 0, 2 to end (SIGTERM)"));
  EXPECT_THAT(run.SortedOut(), ::testing::ElementsAre("[0]<stdout>: terminated", "[2]<stdout>: terminated"));
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(1, "exited with code 5")));
}

TEST(LauncherFailureTest, RanksThatDoNotListenAreKilledAfterTheGracePeriod) {
  LauncherRun run({"--grace-period", "0.2", "-np", "2", "sh", "-c",
                   absl::StrCat("trap '' TERM; ", AwaitAllRanks(2),
                                "if [ $RONDA_RANK = 1 ]; then exit 5; fi; while :; do sleep 0.05; done")});
  EXPECT_EQ(run.Finish(), 5);
  EXPECT_THAT(run.err(), HasSubstr("rondarun: rank 0 did not end within 200ms; killing (SIGKILL)"));
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(1, "exited with code 5")));
}

TEST(LauncherFailureTest, RanksThatEndByThemselvesAreNotSignalled) {
  // The launcher gives the other ranks one second to end by themselves, in which rank 0 reports the death of rank 1.
  LauncherRun run(Shell(2, absl::StrCat("trap 'echo signalled; exit 9' TERM; ", AwaitAllRanks(2),
                                        "if [ $RONDA_RANK = 1 ]; then kill -9 $$; fi; "
                                        "echo 'Error: rank 1 (host h, pid 1) was killed by signal 9' >&2; exit 1")));
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  EXPECT_EQ(run.out(), "");
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(1, "was killed by signal 9 \\(SIGKILL\\)")));
}

TEST(LauncherFailureTest, ReportOfAnotherRanksDeathIsNotTheCauseEvenIfItComesFirst) {
  const std::string flag = absl::StrCat(::testing::TempDir(), "/reported.", getpid());
  LauncherRun run(
      Shell(2, absl::StrCat("if [ $RONDA_RANK = 0 ]; then ", "echo 'Error: rank 1 (host h, pid 1) exited' >&2; touch ",
                            flag, "; exit 1; fi; ", "while [ ! -e ", flag, " ]; do sleep 0.01; done; exit 7")));
  EXPECT_EQ(run.Finish(), 7);
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(1, "exited with code 7")));
}

TEST(LauncherFailureTest, RanksThatFinishEarlyAreNoFailure) {
  const std::string flag = absl::StrCat(::testing::TempDir(), "/rank0done.", getpid());
  LauncherRun run(
      {"-np", "2", "--verbose", "sh", "-c",
       absl::StrCat("[ $RONDA_RANK = 0 ] || { while [ ! -e ", flag, " ]; do sleep 0.01; done; echo late; }")});
  run.WaitForErr(") exited with code 0");
  std::ofstream(flag) << "";
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[1]<stdout>: late\n");
}

TEST(LauncherFailureTest, ChildrenOfARankDieWithIt) {
  LauncherRun run(Shell(2, "sleep 1000 & echo child$RONDA_RANK=$!; exit $RONDA_RANK"));
  EXPECT_EQ(run.Finish(), 1);
  for (const char* label : {"child0=", "child1="}) {
    const pid_t child = NumberAfter(run.out(), label);
    WaitUntil([&] { return !IsRunning(child); }, "the end of a rank's child");
  }
}

TEST(LauncherFailureTest, EightRanksEndWithTheFirst) {
  LauncherRun run(Shell(8, absl::StrCat("echo pid$RONDA_RANK=$$; ", AwaitAllRanks(8),
                                        "if [ $RONDA_RANK = 5 ]; then echo bad luck >&2; exit 9; fi; "
                                        "exec sleep 1000")));
  EXPECT_EQ(run.Finish(), 9);
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(5, "exited with code 9; last error: \"bad luck\"")));
  for (int rank = 0; rank < 8; ++rank) EXPECT_FALSE(IsRunning(NumberAfter(run.out(), absl::StrCat("pid", rank, "="))));
}

TEST(LauncherFailureTest, JobIsStartedAgainUntilItDoesNotFail) {
  const std::string log = absl::StrCat(::testing::TempDir(), "/attempts.", getpid());
  LauncherRun run({"--max-restarts", "5", "-np", "1", "sh", "-c",
                   absl::StrCat("echo $RONDA_JOB_ID >> ", log, "; [ $(wc -l < ", log, ") = 3 ] || exit 4; sort -u ",
                                log, " | wc -l")});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: 3\n");  // each process is a separate job
  EXPECT_THAT(run.err(), HasSubstr("the job has failed; starting it again (restart 1 of at most 5)"));
  EXPECT_THAT(run.err(), HasSubstr("(restart 2 of at most 5)"));
  EXPECT_THAT(run.err(), Not(HasSubstr("(restart 3 of at most 5)")));
}

TEST(LauncherFailureTest, FilesKeepTheOutputOfFailedAttempts) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/logs.", getpid());
  for (int run = 0; run < 2; ++run) {  // the second job overwrites the files of the first
    LauncherRun job({"--max-restarts", "1", "-np", "1", "--output-filename", directory, "sh", "-c",
                     "echo out; echo reason >&2; exit 4"});
    EXPECT_EQ(job.Finish(), 4);
    EXPECT_EQ(ReadFile(directory + "/rank.0/stdout").value_or(""), "out\n\nrondarun: restart 1\nout\n");
    EXPECT_EQ(ReadFile(directory + "/rank.0/stderr").value_or(""), "reason\n\nrondarun: restart 1\nreason\n");
  }
}

TEST(LauncherFailureTest, RestartsEndWithTheLastFailure) {
  LauncherRun run({"--max-restarts", "1", "-np", "1", "sh", "-c", "exit 4"});
  EXPECT_EQ(run.Finish(), 4);
  EXPECT_THAT(run.LastLine(), MatchesRegex(LastLineOf(0, "exited with code 4")));
}

TEST(LauncherFailureTest, CommandThatCannotBeStartedIsNotTriedAgain) {
  LauncherRun run({"--max-restarts", "3", "-np", "1", "./no-such-command"});
  EXPECT_EQ(run.Finish(), 127);
  EXPECT_THAT(run.err(), Not(HasSubstr("restart")));
}

TEST(LauncherFailureTest, JobThatTheUserEndsIsNotStartedAgain) {
  LauncherRun run({"--max-restarts", "3", "-np", "1", "sh", "-c", "echo ready; exec sleep 600"});
  run.WaitForOut("ready");
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
  EXPECT_THAT(run.err(), Not(HasSubstr("restart")));
}

TEST(LauncherFailureTest, NoZombieRemainsWhileOthersRun) {
  LauncherRun run({"-np", "2", "--verbose", "sh", "-c", "[ $RONDA_RANK = 0 ] && exit 0; exec sleep 1000"});
  run.WaitForErr(") exited with code 0");
  const pid_t ended = NumberAfter(run.err(), "rank 0 is pid ");
  EXPECT_EQ(kill(ended, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ronda
