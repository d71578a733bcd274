// SPDX-License-Identifier: Apache-2.0

// Tests that processes started by ranks end together with the ranks, even if they have their own sessions.
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

// A process with its own session. Ranks start it with `eval "$DAEMON"`, which waits until the process runs. It writes
// its pid to a file, because a line of output would be lost if the launcher were killed before forwarding it.
class Daemon {
 public:
  explicit Daemon(const std::string& name)
      : file_(absl::StrCat(::testing::TempDir(), "/", absl::StrReplaceAll(name, {{" ", "_"}, {"$", ""}}), getpid())) {}

  LauncherRun::Options Options() const {
    return {.environment = {absl::StrCat("FILE=", file_), "LAUNCHER=programs/rondarun/rondarun",
                            "DAEMON=setsid sh -c 'echo $$ >$FILE.new; mv $FILE.new $FILE; exec sleep 1000' "
                            ">/dev/null 2>&1 & until [ -e $FILE ]; do sleep 0.01; done"}};
  }

  void WaitForStart() const {
    WaitUntil([this] { return ReadFile(file_).ok(); }, "the start of the daemon");
  }

  void ExpectItsEnd() const {
    WaitForStart();
    pid_t number = 0;
    ASSERT_TRUE(absl::SimpleAtoi(ReadFile(file_).value(), &number));
    WaitUntil([&] { return !IsRunning(number); }, absl::StrCat("the end of process ", number));
  }

 private:
  std::string file_;
};

TEST(OrphansTest, ChildrenOfARankEndWithTheJob) {
  for (const std::string end : {"exit 0", "exit 3", "kill -9 $$"}) {
    const Daemon daemon("job " + end);
    LauncherRun run(Shell(1, absl::StrCat("eval \"$DAEMON\"; ", end)), daemon.Options());
    run.Finish();
    daemon.ExpectItsEnd();
  }
}

TEST(OrphansTest, ChildrenOfARankEndWithThatRank) {
  const Daemon daemon("rank");
  LauncherRun run({"-np", "2", "--min-np", "1", "sh", "-c",
                   "[ $RONDA_LOCAL_RANK = 0 ] && exec sleep 1000; eval \"$DAEMON\"; exit 0"},
                  daemon.Options());
  daemon.ExpectItsEnd();
}

TEST(OrphansTest, ChildrenOfARankEndWhenTheLauncherIsKilled) {
  const Daemon daemon("killed");
  LauncherRun run(Shell(1, "eval \"$DAEMON\"; sleep 1000"), daemon.Options());
  daemon.WaitForStart();
  run.Signal(SIGKILL);
  daemon.ExpectItsEnd();
}

// The guard process of the inner launcher outlives the inner launcher, and kills the processes of the inner ranks.
TEST(OrphansTest, ALauncherWithinARankTakesItsOwnRanksWithIt) {
  const Daemon daemon("inner");
  LauncherRun run(Shell(1,
                        "\"$LAUNCHER\" -np 1 sh -c 'eval \"$DAEMON\"; sleep 1000' & "
                        "until [ -e $FILE ]; do sleep 0.01; done; exit 0"),
                  daemon.Options());
  daemon.ExpectItsEnd();
}

}  // namespace
}  // namespace ronda
