// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/spawn.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::HasSubstr;

TEST(SpawnTest, RunsTheRanksOfAJobInProcessesOfTheirOwn) {
  const pid_t parent = getpid();
  int changed = 0;
  ronda::spawn(3, [&] {
    std::vector<float> sum = {static_cast<float>(ronda::rank()), 1};
    ronda::allreduce(ronda::tensor("sum", sum), {ronda::Op::Sum});
    if (sum != std::vector<float>{3, 3}) throw std::runtime_error("the sum is wrong");
    if (getpid() == parent) throw std::runtime_error("the process is the first one");
    changed = 1;
  });
  EXPECT_EQ(changed, 0);
  EXPECT_FALSE(ronda::is_initialized());
}

TEST(SpawnTest, MayBeCalledAgain) {
  for (int i = 0; i < 3; ++i) ronda::spawn(2, [] { ronda::barrier(); });
}

TEST(SpawnTest, AnExceptionComesBackWithTheRankAndIsNotHiddenByTheOthers) {
  const ronda::Status status = ronda::try_spawn(3, [] {
    if (ronda::rank() == 1) throw std::runtime_error("digits are missing");
    float x = 0;
    ronda::allreduce(ronda::tensor("x", &x));
  });
  EXPECT_EQ(status.message(), "rank 1: digits are missing");
  EXPECT_EQ(status.code(), RONDA_ERROR_INTERNAL);
}

TEST(SpawnTest, AnErrorOfRondaKeepsItsCode) {
  const ronda::Status status = ronda::try_spawn(2, [] {
    std::vector<float> x(ronda::rank() == 0 ? 1 : 2);
    ronda::allreduce(ronda::tensor("x", x));
  });
  EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH);
  EXPECT_THAT(status.message(), HasSubstr("'x'"));
}

TEST(SpawnTest, AProcessThatIsKilledIsNamed) {
  const ronda::Status status = ronda::try_spawn(3, [] {
    if (ronda::rank() == 2) kill(getpid(), SIGKILL);
    float x = 0;
    ronda::allreduce(ronda::tensor("x", &x));
  });
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
  EXPECT_THAT(status.message(), HasSubstr("rank 2"));
}

TEST(SpawnTest, ARankThatDoesNotEndAfterAFailureIsKilled) {
  const ronda::Status status = ronda::try_spawn(2, [] {
    if (ronda::rank() == 1) throw std::runtime_error("over");
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  });
  EXPECT_EQ(status.message(), "rank 1: over");
}

TEST(SpawnTest, RankThatIsKilledIsAnErrorAlsoIfTheKernelReapsProcesses) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  const ronda::Status good = ronda::try_spawn(2, [] { ronda::barrier(); });
  const ronda::Status bad = ronda::try_spawn(1, [] { kill(getpid(), SIGKILL); });
  signal(SIGCHLD, before);
  EXPECT_TRUE(good.ok()) << good.message();
  EXPECT_EQ(bad.code(), RONDA_ERROR_PEER_FAILED);
  EXPECT_THAT(bad.message(), HasSubstr("rank 0: ended with an unknown status: do not ignore SIGCHLD"));
}

// A pipe that nobody writes to. Processes that read from it run until the destructor.
class Forever {
 public:
  Forever() {
    if (pipe(ends_) != 0) throw std::runtime_error("pipe");
  }
  ~Forever() {
    close(ends_[0]);
    close(ends_[1]);
  }
  // Starts a process that runs until the destructor. If `program` is given, the process executes it.
  void fork_reader(const char* program = nullptr) const {
    if (fork() != 0) return;
    close(ends_[1]);
    dup2(ends_[0], STDIN_FILENO);
    if (program != nullptr) execlp(program, program, nullptr);
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    _exit(0);
  }

 private:
  int ends_[2] = {};
};

TEST(SpawnTest, RankMayStartAProgramThatRunsLonger) {
  const Forever forever;
  EXPECT_TRUE(ronda::try_spawn(1, [&] { forever.fork_reader("cat"); }).ok());
}

TEST(SpawnTest, ProcessThatARankHasForkedDoesNotDelayAFailure) {
  const Forever forever;
  const ronda::Status status = ronda::try_spawn(2, [&] {
    if (ronda::rank() == 1) throw std::runtime_error("over");
    forever.fork_reader();
  });
  EXPECT_EQ(status.message(), "rank 1: over");
}

TEST(SpawnTest, RefusesNoRanksAndRanks) {
  EXPECT_EQ(ronda::try_spawn(0, [] {}).code(), RONDA_ERROR_INVALID_ARGUMENT);
  ronda::run_threads(1, [] { EXPECT_EQ(ronda::try_spawn(2, [] {}).code(), RONDA_ERROR_ALREADY_INITIALIZED); });
}

}  // namespace
