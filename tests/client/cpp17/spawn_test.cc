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

TEST(SpawnTest, RefusesNoRanksAndRanks) {
  EXPECT_EQ(ronda::try_spawn(0, [] {}).code(), RONDA_ERROR_INVALID_ARGUMENT);
  ronda::run_threads(1, [] { EXPECT_EQ(ronda::try_spawn(2, [] {}).code(), RONDA_ERROR_ALREADY_INITIALIZED); });
}

}  // namespace
