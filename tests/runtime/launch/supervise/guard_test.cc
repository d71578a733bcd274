#include "runtime/launch/supervise/guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"

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
  // No other child is left to wait for.
  EXPECT_EQ(waitpid(-1, nullptr, 0), spared);
  EXPECT_EQ(waitpid(-1, nullptr, 0), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(OrphansTest, WithoutChildrenNothingIsKilledOrAwaited) {
  ASSERT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  const absl::Time begin = SteadyNow();
  KillOrphans({});
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(10));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(OrphansTest, ASparedChildLivesOn) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  KillOrphans({child});
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0);
  KillOrphans({});
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(LeftoversTest, OnlyThoseOfTheJobAreRemoved) {
  const std::string mine = "/dev/shm/ronda-guardtest0-ring";
  const std::string other = "/dev/shm/ronda-guardtest1-ring";
  for (const std::string& path : {mine, other}) std::ofstream(path) << "x";
  RemoveSharedMemoryLeftovers("");
  EXPECT_EQ(access(mine.c_str(), F_OK), 0);
  RemoveSharedMemoryLeftovers("guardtest0");
  EXPECT_NE(access(mine.c_str(), F_OK), 0);
  EXPECT_EQ(access(other.c_str(), F_OK), 0);
  unlink(other.c_str());
}

}  // namespace
}  // namespace ronda
