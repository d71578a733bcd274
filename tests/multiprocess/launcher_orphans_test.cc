// SPDX-License-Identifier: Apache-2.0

// Processes that ranks have started end with the ranks, even if they have their own sessions.
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

// The ranks' command `eval "$DAEMON"` starts a process with its own session, and waits until the process runs. The
// process prints its number.
LauncherRun::Options WithDaemon(const std::string& name) {
  return {.environment = {absl::StrCat("FLAG=", ::testing::TempDir(), "/",
                                       absl::StrReplaceAll(name, {{" ", "_"}, {"$", ""}}), getpid()),
                          "LAUNCHER=programs/rondarun/rondarun",
                          "DAEMON=setsid sh -c 'echo daemon $$; : >$FLAG; exec sleep 1000 >/dev/null 2>&1' & "
                          "until [ -e $FLAG ]; do sleep 0.01; done"}};
}

void ExpectDaemonGone(const LauncherRun& run) {
  const pid_t daemon = NumberAfter(run.out(), "daemon ");
  WaitUntil([&] { return !IsRunning(daemon); }, absl::StrCat("the end of process ", daemon));
}

TEST(OrphansTest, ChildrenOfARankEndWithTheJob) {
  for (const std::string end : {"exit 0", "exit 3", "kill -9 $$"}) {
    LauncherRun run(Shell(1, absl::StrCat("eval \"$DAEMON\"; ", end)), WithDaemon("job " + end));
    run.Finish();
    ExpectDaemonGone(run);
  }
}

TEST(OrphansTest, ChildrenOfARankEndWithThatRank) {
  LauncherRun run({"-np", "2", "--min-np", "1", "sh", "-c",
                   "[ $RONDA_LOCAL_RANK = 0 ] && exec sleep 1000; eval \"$DAEMON\"; exit 0"},
                  WithDaemon("rank"));
  run.WaitForOut("daemon ");
  ExpectDaemonGone(run);
}

TEST(OrphansTest, ChildrenOfARankEndWhenTheLauncherIsKilled) {
  LauncherRun run(Shell(1, "eval \"$DAEMON\"; sleep 1000"), WithDaemon("killed"));
  run.WaitForOut("daemon ");
  run.Signal(SIGKILL);
  ExpectDaemonGone(run);
}

// The guard of the inner launcher outlives it, and does the same for its own ranks.
TEST(OrphansTest, ALauncherWithinARankTakesItsOwnRanksWithIt) {
  LauncherRun run(Shell(1,
                        "\"$LAUNCHER\" -np 1 sh -c 'eval \"$DAEMON\"; sleep 1000' & "
                        "until [ -e $FLAG ]; do sleep 0.01; done; exit 0"),
                  WithDaemon("inner"));
  run.WaitForOut("daemon ");
  ExpectDaemonGone(run);
}

}  // namespace
}  // namespace ronda
