// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/guard.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

// Starts a process with its own session and with `variable` in its environment.
pid_t StartDaemon(const std::string& variable) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    dup2(ready[1], STDOUT_FILENO);
    const std::array<const char*, 2> environment = {variable.c_str(), nullptr};
    execle("/bin/sh", "sh", "-c", "echo; exec sleep 1000", nullptr, environment.data());
    _exit(1);
  }
  close(ready[1]);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return pid;
}

// Returns whether the process was killed with SIGKILL. Terminates it if it is still running.
bool WasKilled(pid_t pid) {
  kill(pid, SIGTERM);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WTERMSIG(status) == SIGKILL;
}

TEST(KillMarkedTest, OnlyProcessesWithTheMarksAreKilled) {
  const std::string launch = absl::StrCat("guardtest-", getpid(), "/");
  const pid_t first = StartDaemon(absl::StrCat("RONDA_LAUNCH=", launch, "1/"));
  const pid_t second = StartDaemon(absl::StrCat("RONDA_LAUNCH=", launch, "2/"));
  const pid_t other_of_launch = StartDaemon(absl::StrCat("RONDA_LAUNCH=", launch, "12/"));
  const pid_t other_variable = StartDaemon(absl::StrCat("X_RONDA_LAUNCH=", launch, "1/"));
  KillMarked({launch + "1/", launch + "2/"});
  EXPECT_TRUE(WasKilled(first));
  EXPECT_TRUE(WasKilled(second));
  EXPECT_FALSE(WasKilled(other_of_launch));
  EXPECT_FALSE(WasKilled(other_variable));
}

TEST(GuardTest, ItsEndEndsAllThatHasItsMarks) {
  std::unique_ptr<Guard> guard = *Guard::Start("");
  EXPECT_NE(guard->NewMark(), guard->NewMark());
  const pid_t daemon = StartDaemon("RONDA_LAUNCH=" + guard->NewMark());
  guard.reset();
  EXPECT_TRUE(WasKilled(daemon));
}

TEST(LeftoversTest, OnlyThoseOfTheJobAreRemoved) {
  const std::string job = absl::StrCat("guardtest", getpid());
  const std::string mine = absl::StrCat("/dev/shm/ronda-", job, "-ring");
  const std::string other = absl::StrCat("/dev/shm/ronda-other", job, "-ring");
  for (const std::string& path : {mine, other}) std::ofstream(path) << "x";
  const std::string link = absl::StrCat("/dev/shm/ronda-", job);
  ASSERT_EQ(symlink("leads nowhere", link.c_str()), 0);
  struct stat info;
  RemoveSharedMemoryLeftovers("");
  EXPECT_EQ(access(mine.c_str(), F_OK), 0);
  EXPECT_EQ(lstat(link.c_str(), &info), 0);
  RemoveSharedMemoryLeftovers(job);
  EXPECT_NE(access(mine.c_str(), F_OK), 0);
  EXPECT_NE(lstat(link.c_str(), &info), 0);
  EXPECT_EQ(access(other.c_str(), F_OK), 0);
  unlink(other.c_str());
}

}  // namespace
}  // namespace ronda
