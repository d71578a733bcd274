#include "runtime/launch/mpirun_report.h"

#include <csignal>
#include <optional>
#include <string>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

std::optional<RankEnd> FailureIn(const std::string& text) {
  MpirunReport report;
  for (absl::string_view line : absl::StrSplit(text, '\n')) report.Add(line);
  return report.failure();
}

TEST(MpirunReportTest, OpenMpiNamesARankThatWasKilled) {
  const auto failure = FailureIn(
      "--------------------------------------------------------------------------\n"
      "mpirun.openmpi noticed that process rank 1 with PID 25960 on node hosta exited on signal 9 (Killed).\n"
      "--------------------------------------------------------------------------\n");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->pid, 25960);
  EXPECT_EQ(failure->host, "hosta");
  EXPECT_EQ(failure->signal, SIGKILL);
  EXPECT_EQ(failure->exit_code, 0);
}

TEST(MpirunReportTest, OpenMpiNamesTheFirstRankThatExited) {
  const auto failure = FailureIn(
      "Primary job  terminated normally, but 1 process returned\n"
      "a non-zero exit code. Per user-direction, the job has been aborted.\n"
      "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
      "the job to be terminated. The first process to do so was:\n"
      "\n"
      "  Process name: [[14672,1],12]\n"
      "  Exit code:    3\n");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 12);
  EXPECT_EQ(failure->exit_code, 3);
  EXPECT_EQ(failure->signal, 0);
  EXPECT_EQ(failure->host, "");
}

TEST(MpirunReportTest, HydraNamesTheHostOfARankThatWasKilledAndAnotherRanksProcess) {
  const auto failure = FailureIn(
      "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
      "=   PID 25976 RUNNING AT hosta\n"
      "=   EXIT CODE: 9\n"
      "=   CLEANING UP REMAINING PROCESSES\n"
      "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, -1);
  EXPECT_EQ(failure->pid, 0);
  EXPECT_EQ(failure->host, "hosta");
  EXPECT_EQ(failure->signal, SIGKILL);
  EXPECT_EQ(failure->exit_code, 0);
}

TEST(MpirunReportTest, HydrasExitCodesAreCountedAcrossHosts) {
  const auto failure = FailureIn("[mpiexec@vm] Exit codes: [hosta] 0,0 [hostb] 0,768,256");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 3);
  EXPECT_EQ(failure->host, "hostb");
  EXPECT_EQ(failure->exit_code, 3);
  EXPECT_FALSE(FailureIn("[mpiexec@vm] Exit codes: [hosta] 0,0").has_value());
}

TEST(MpirunReportTest, OtherTextsNameNobody) {
  for (const char* text :
       {"", "mpirun was unable to find the specified executable file, and therefore", "Exit code:    3",
        "Process name: [[14672,1],1]", "noticed that process rank x exited on signal 9",
        "EXIT STRING: Killed (signal 9)", "=   EXIT CODE: 9", "[mpiexec@vm] Exit codes: [vm] ???"}) {
    EXPECT_FALSE(FailureIn(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace ronda
