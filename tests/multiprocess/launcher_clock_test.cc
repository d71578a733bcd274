// SPDX-License-Identifier: Apache-2.0

// Tests jobs that wait while the machine's clock is set. Deadlines must pass neither too early nor too late.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

class ClockTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    environment_ = {"LD_PRELOAD=./tests/multiprocess/libshifted_clock.so", absl::StrCat("SHIFTED_CLOCK=", file_),
                    absl::StrCat("RONDA_BACKEND=", GetParam()), absl::StrCat("TEST_PROGRAM=", Program())};
    Shift(0);
  }

  static std::string Program() { return "./tests/multiprocess/launcher_surroundings_test"; }

  // Shifts the clock of the launcher and its ranks to `seconds` after the real time.
  void Shift(int seconds) const { std::ofstream(file_) << seconds << '\n'; }

  std::vector<std::string> environment_;

 private:
  const std::string file_ = ::testing::TempDir() + "/shift";
};

constexpr int kHour = 3600;

TEST_P(ClockTest, AJumpForwardEndsNoWait) {
  // Rank 1 starts only after rank 0 has had time to read the shifted clock.
  LauncherRun run(Shell(2,
                        "[ $RONDA_RANK = 0 ] || { echo waiting; "
                        "until grep -q 3600 $SHIFTED_CLOCK; do sleep 0.1; done; sleep 2; }; exec $TEST_PROGRAM rank"),
                  {.environment = environment_});
  run.WaitForOut("waiting");
  Shift(kHour);
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.out(), HasSubstr("[0]<stdout>: the sum is 2\n"));
}

TEST_P(ClockTest, AJumpBackProlongsNoWait) {
  LauncherRun run({"-np", "2", "--start-timeout", "3", "sh", "-c",
                   "[ $RONDA_RANK = 0 ] || { echo waiting; exec sleep 1000; }; exec $TEST_PROGRAM rank"},
                  {.environment = environment_});
  run.WaitForOut("waiting");
  Shift(-kHour);
  EXPECT_NE(run.Finish(), 0);
  EXPECT_THAT(run.err(), HasSubstr("within 3s"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ClockTest, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ronda
