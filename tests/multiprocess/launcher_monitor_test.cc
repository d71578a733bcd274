// SPDX-License-Identifier: Apache-2.0

// Tests rondarun --monitor. The monitor must run exactly as long as the job.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the environment variables through which rondarun finds this build's monitor, and the monitor finds the folder
// for its token.
LauncherRun::Options WithMonitor() {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/run.", getpid());
  std::filesystem::create_directories(folder);
  return {.environment = {absl::StrCat("PATH=", std::filesystem::current_path().string(),
                                       "/programs/monitor/serve:", std::getenv("PATH")),
                          absl::StrCat("XDG_RUNTIME_DIR=", folder)}};
}

// Each rank prints the pid of the monitor, which is a child of the rank's parent, and waits.
constexpr char kPrintMonitorAndStay[] =
    "while ! p=$(pgrep -P $PPID -x ronda-monitor); do sleep 0.01; done; echo monitor $p; while :; do sleep 0.02; done";

class LauncherMonitorTest : public ::testing::Test {
 protected:
  LauncherMonitorTest() : run_({"--monitor", "-np", "2", "sh", "-c", kPrintMonitorAndStay}, WithMonitor()) {
    run_.WaitForOut("monitor ", 2);
    run_.WaitForErr("the token is in ");
    run_.WaitForOut("\n", 2);
    monitor_ = NumberAfter(run_.out(), "monitor ");
  }

  LauncherRun run_;
  pid_t monitor_ = 0;
};

TEST_F(LauncherMonitorTest, AddressIsPrintedAndTheMonitorEndsWithTheJob) {
  EXPECT_THAT(run_.err(), HasSubstr("rondarun: ronda-monitor: http://127.0.0.1:"));
  EXPECT_TRUE(IsRunning(monitor_));
  run_.Signal(SIGTERM);
  EXPECT_EQ(run_.Finish(), 128 + SIGTERM);
  EXPECT_FALSE(IsRunning(monitor_));
  EXPECT_EQ(run_.LastLine(), "rondarun: the job was ended: received SIGTERM");
  EXPECT_THAT(run_.err(), Not(HasSubstr("ronda-monitor has ended")));
}

TEST_F(LauncherMonitorTest, NoMonitorIsLeftWhenTheLauncherIsKilled) {
  run_.Signal(SIGKILL);
  EXPECT_EQ(run_.Finish(), -SIGKILL);
  WaitUntil([&] { return !IsRunning(monitor_); }, "the monitor's end");
}

TEST_F(LauncherMonitorTest, JobGoesOnWithoutItsMonitor) {
  kill(monitor_, SIGKILL);
  run_.WaitForErr("rondarun: ronda-monitor has ended; the job goes on without it");
  run_.Signal(SIGINT);
  EXPECT_EQ(run_.Finish(), 128 + SIGINT);
}

TEST(LauncherWithoutMonitorTest, JobThatCannotHaveOneGoesOn) {
  LauncherRun::Options options = WithMonitor();
  options.environment[0] = "PATH=/usr/bin:/bin";
  LauncherRun run({"--monitor", "-np", "1", "sh", "-c", "echo worked"}, options);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.out(), HasSubstr("worked\n"));
  EXPECT_THAT(run.err(), AllOf(HasSubstr("command not found: ronda-monitor"), HasSubstr("the job goes on without it")));
}

TEST(LauncherWithoutMonitorTest, PortInUseIsSaid) {
  const LauncherRun::Options options = WithMonitor();
  LauncherRun first({"--monitor", "-np", "1", "sh", "-c", "while :; do sleep 0.02; done"}, options);
  first.WaitForErr("/ shows job ");
  const std::string port = absl::StrCat(NumberAfter(first.err(), "http://127.0.0.1:"));
  LauncherRun second({absl::StrCat("--monitor=", port), "-np", "1", "sh", "-c", "while :; do sleep 0.02; done"},
                     options);
  second.WaitForErr("the job goes on without it");
  EXPECT_THAT(second.err(), HasSubstr(absl::StrCat("ronda-monitor: cannot listen on 127.0.0.1:", port)));
  second.Signal(SIGTERM);
  EXPECT_EQ(second.Finish(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ronda
