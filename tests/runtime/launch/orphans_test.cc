#include "runtime/launch/orphans.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "gtest/gtest.h"

namespace ronda {
namespace {

// Starts a process that sleeps, and one below a parent that ends at once. Returns the first one.
pid_t StartFamily() {
  const pid_t sleeper = fork();
  if (sleeper == 0) {
    pause();
    _exit(0);
  }
  const pid_t parent = fork();
  if (parent == 0) {
    if (fork() == 0) pause();
    _exit(0);
  }
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  return sleeper;
}

TEST(OrphansTest, AllChildrenAreKilledButThoseSpared) {
  AdoptOrphans();
  const pid_t spared = StartFamily();
  KillOrphans({spared});
  EXPECT_EQ(kill(spared, SIGKILL), 0);
  // Nobody else is left to wait for.
  EXPECT_EQ(waitpid(-1, nullptr, 0), spared);
  EXPECT_EQ(waitpid(-1, nullptr, 0), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(OrphansTest, NobodyToKillIsFine) { KillOrphans({}); }

}  // namespace
}  // namespace ronda
