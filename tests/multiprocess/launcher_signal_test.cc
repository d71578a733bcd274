// SPDX-License-Identifier: Apache-2.0

// Tests how rondarun forwards signals, and that no process or shared memory remains when rondarun itself is killed.
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
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

struct Forwarded {
  int signo;
  std::string name;  // as in `trap`
};

class ForwardedSignalTest : public ::testing::TestWithParam<Forwarded> {};

TEST_P(ForwardedSignalTest, ReachesEveryRankAndEndsTheJob) {
  const auto& [signo, name] = GetParam();
  LauncherRun run(Shell(
      3, absl::StrCat("trap 'echo got ", name, "; exit 0' ", name, "; echo ready; while :; do sleep 0.02; done")));
  run.WaitForOut("ready", 3);
  run.Signal(signo);
  run.WaitForOut("got " + name, 3);
  EXPECT_EQ(run.Finish(), 128 + signo);
  EXPECT_THAT(run.err(), HasSubstr("received SIG" + name + "; telling ranks 0, 1, 2 to end (killed in 5s"));
  EXPECT_EQ(run.LastLine(), "rondarun: the job was ended: received SIG" + name);
}

INSTANTIATE_TEST_SUITE_P(All, ForwardedSignalTest,
                         ::testing::Values(Forwarded{SIGINT, "INT"}, Forwarded{SIGTERM, "TERM"},
                                           Forwarded{SIGHUP, "HUP"}));

TEST(LauncherSignalTest, RanksThatDoNotListenAreKilledAfterTheGracePeriod) {
  LauncherRun run(
      {"--grace-period", "0.2", "-np", "2", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"});
  run.WaitForOut("ready", 2);
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
  EXPECT_THAT(run.err(), HasSubstr("rondarun: ranks 0, 1 did not end within 200ms; killing (SIGKILL)"));
}

TEST(LauncherSignalTest, SecondInterruptKillsAtOnce) {
  // Without the second interrupt, the launcher would kill the ranks only after an hour.
  LauncherRun run({"--grace-period", "3600", "-np", "2", "sh", "-c",
                   "trap 'echo ignored' INT; echo ready; while :; do sleep 0.02; done"});
  run.WaitForOut("ready", 2);
  run.Signal(SIGINT);
  run.WaitForOut("ignored", 2);
  run.Signal(SIGINT);
  EXPECT_EQ(run.Finish(), 128 + SIGINT);
  EXPECT_THAT(run.err(), HasSubstr("rondarun: killing ranks 0, 1"));
}

TEST(LauncherSignalTest, FailureBeforeTheSignalDecides) {
  LauncherRun run(Shell(2, absl::StrCat("trap 'echo told' TERM; ", AwaitAllRanks(2),
                                        "if [ $RONDA_RANK = 1 ]; then exit 4; fi; while :; do sleep 0.02; done")));
  run.WaitForOut("told");
  run.Signal(SIGINT);
  EXPECT_EQ(run.Finish(), 4);
  EXPECT_THAT(run.LastLine(), HasSubstr("exited with code 4"));
}

TEST(LauncherSignalTest, SignalsIgnoredFromTheStartStayIgnored) {
  // The launcher starts with SIGHUP ignored, as under nohup.
  const std::string flag = absl::StrCat(::testing::TempDir(), "/go.", getpid());
  LauncherRun run(Shell(1, absl::StrCat("echo ready; while [ ! -e ", flag, " ]; do sleep 0.01; done; echo finished")),
                  {.in_child = [] { signal(SIGHUP, SIG_IGN); }});
  run.WaitForOut("ready");
  run.Signal(SIGHUP);
  std::ofstream(flag) << "";
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: ready\n[0]<stdout>: finished\n");
}

// Returns the bits of the standard signals after `label` in a process's status. Leaves out signals above 31, which
// language runtimes and sanitizers use internally.
uint64_t StandardSignals(const std::string& status, const std::string& label) {
  const size_t at = status.find(label);
  EXPECT_NE(at, std::string::npos) << label << " in " << status;
  return at == std::string::npos ? 0 : std::stoull(status.substr(at + label.size()), nullptr, 16) & 0x7fffffff;
}

TEST(LauncherSignalTest, RanksHaveTheSignalHandlingOfTheLaunchersParent) {
  LauncherRun run(Shell(1, "exec cat /proc/self/status"));
  EXPECT_EQ(run.Finish(), 0);
  const std::string own = ReadFile("/proc/self/status").value_or("");
  for (const char* label : {"SigBlk:", "SigIgn:"}) {
    EXPECT_EQ(StandardSignals(run.out(), label), StandardSignals(own, label)) << label;
  }
}

TEST(LauncherSignalTest, ProcessesEndWithAKilledLauncher) {
  // Each rank starts a child and a grandchild that ignore SIGTERM, SIGHUP and SIGINT.
  LauncherRun run(
      Shell(4,
            "sh -c 'trap \"\" TERM HUP INT; sleep 1000 & echo pid=$!; echo pid=$$; wait' & "
            "echo pid=$$; echo x > /dev/shm/ronda-$RONDA_JOB_ID.$RONDA_RANK; echo job=$RONDA_JOB_ID.; wait"));
  run.WaitForOut("pid=", 12);
  run.WaitForOut("job=", 4);
  run.WaitForOut("\n", 16);
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Finish(), -SIGKILL);
  std::string job;
  for (const std::string& line : Lines(run.out())) {
    if (const size_t at = line.find("job="); at != std::string::npos) job = line.substr(at + 4);
    if (line.find("pid=") == std::string::npos) continue;
    const pid_t pid = NumberAfter(line, "pid=");
    WaitUntil([&] { return !IsRunning(pid); }, "the end of " + line);
  }
  for (int rank = 0; rank < 4; ++rank) {
    const std::string leftover = absl::StrCat("/dev/shm/ronda-", job, rank);
    WaitUntil([&] { return !std::filesystem::exists(leftover); }, "the removal of " + leftover);
  }
}

TEST(LauncherSignalTest, GuardEndsWithTheLauncher) {
  // The guard is a child of the launcher, like rank 0. It sets its own process name, so it may have the name only a
  // moment after it starts.
  LauncherRun run(Shell(1,
                        "until [ \"$guard\" ]; do for p in $(cat /proc/$PPID/task/$PPID/children); do "
                        "[ $(cat /proc/$p/comm) != rondarun-guard ] || guard=$p; done; done; echo guard=$guard"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_FALSE(IsRunning(NumberAfter(run.out(), "guard=")));
}

TEST(LauncherSignalTest, SharedMemoryOfADeadJobIsRemoved) {
  LauncherRun run(Shell(1, "f=/dev/shm/ronda-$RONDA_JOB_ID-leftover; echo x > $f; echo made=$f; kill -9 $$"));
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  const std::string line = Lines(run.out()).front();
  const std::string leftover = line.substr(line.find("made=") + 5);
  EXPECT_THAT(leftover, HasSubstr("/dev/shm/ronda-"));
  EXPECT_FALSE(std::filesystem::exists(leftover));
}

TEST(LauncherSignalTest, SharedMemoryOfOtherJobsIsLeftAlone) {
  const std::string other = absl::StrCat("/dev/shm/ronda-0123456789abcdef-test-", getpid());
  std::ofstream(other) << "x";
  LauncherRun run(Shell(1, "true"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_TRUE(std::filesystem::remove(other));
}

}  // namespace
}  // namespace ronda
