// SPDX-License-Identifier: Apache-2.0

// Tests what rondarun --summary prints while a job runs, and at its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"
#include "runtime/base/peer.h"
#include "tests/multiprocess/launcher_harness.h"
#include "tests/multiprocess/rank_programs.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> WithSummary(const std::string& program, int ranks = 2) {
  return {"--summary", "-np", absl::StrCat(ranks), std::filesystem::read_symlink("/proc/self/exe"),
          "--rank_program=" + program};
}

void Step() {
  float value = 1;
  allreduce(tensor("gradient", &value), {Op::Sum});
}

// Runs for a second, so that rondarun reads the ranks' statistics several times.
void StepsForASecond() {
  init();
  for (int i = 0; i < 100; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    Step();
  }
  shutdown();
}

TEST(LauncherSummaryTest, SaysWhatTheJobHasCost) {
  LauncherRun run(WithSummary("steps_for_a_second"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.err(),
              AllOf(HasSubstr("rondarun: summary of 2 of 2 ranks, on this host:\n"),
                    ContainsRegex("rondarun:   steps           99\n"),
                    ContainsRegex("rondarun:   time per step   [0-9.]+ ms\n"),
                    ContainsRegex("rondarun:   slowest         rank [01] "),
                    ContainsRegex("rondarun:   exposed         [0-9]+ to [0-9]+ % of a rank's time its "
                                  "program waited for tensors, [0-9.]+ (us|ms) of each step at most\n"),
                    HasSubstr("rondarun:   bytes           400 B of a rank's tensors, 400 B as they travelled\n")));
}

// Each of the two rondarun processes knows only its own ranks. The ranks agree on the job's name by themselves.
TEST(LauncherSummaryTest, NodeKnowsItsOwnRanks) {
  const std::string port = testing::FreePort();
  const auto words = [&](const std::string& node) {
    std::vector<std::string> all = {"--nnodes",         "2", "--node-rank",   node,
                                    "--nproc-per-node", "1", "--master-port", port};
    const std::vector<std::string> rest = WithSummary("steps_for_a_second");
    all.push_back(rest.front());
    all.insert(all.end(), rest.begin() + 3, rest.end());
    return all;
  };
  LauncherRun first(words("0"), {.environment = {"RONDA_JOB_SECRET=f00d"}});
  LauncherRun second(words("1"), {.environment = {"RONDA_JOB_SECRET=f00d"}});
  EXPECT_EQ(first.Finish(), 0);
  EXPECT_EQ(second.Finish(), 0);
  for (const LauncherRun* run : {&first, &second}) {
    EXPECT_THAT(run->err(), HasSubstr("rondarun: summary of 1 of 2 ranks, on this host:\n"));
  }
}

// Does not sleep, so that the ranks end before rondarun has found them.
void TwentySteps() {
  init();
  for (int i = 0; i < 20; ++i) Step();
  shutdown();
}

TEST(LauncherSummaryTest, RanksOfAShortJobLeaveTheirNumbers) {
  LauncherRun run(WithSummary("twenty_steps"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.err(),
              AllOf(HasSubstr("rondarun: summary of 2 of 2 ranks, on this host:\n"),
                    HasSubstr("rondarun:   steps           19\n"),
                    ContainsRegex("rondarun:   time per step   [0-9.]+ (us|ms)\n"),
                    HasSubstr("rondarun:   bytes           80 B of a rank's tensors, 80 B as they travelled\n"),
                    ContainsRegex("rondarun:   schedule        [0-9]+ of 20 collectives without ")));
}

TEST(LauncherSummaryTest, CauseOfAFailureStaysTheLastLine) {
  LauncherRun run({"--summary", "-np", "2", "sh", "-c", "exit 3"});
  EXPECT_EQ(run.Finish(), 3);
  EXPECT_THAT(run.err(),
              HasSubstr("rondarun: no summary: no rank was seen on this host: "
                        "the program did not join a job of Ronda's, or its ranks ran for less than 200ms and "));
  EXPECT_THAT(run.LastLine(), HasSubstr("exited with code 3"));
}

TEST(LauncherSummaryTest, SummaryIsPrintedOnlyOnRequest) {
  std::vector<std::string> words = WithSummary("steps_for_a_second");
  words.erase(words.begin());
  LauncherRun run(words);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.err(), Not(HasSubstr("summary")));
}

void IsLateUntilTheEnd() {
  init();
  while (true) {
    if (rank() == 1) absl::SleepFor(absl::Milliseconds(5));
    Step();
  }
}

TEST(LauncherSummaryTest, ChronicStragglerIsNamedWhileTheJobRuns) {
  LauncherRun run(WithSummary("is_late_until_the_end"));
  run.WaitForErr("rondarun: rank 1 (host ");
  run.WaitForErr(" of the last 300 steps: the others wait for it for ");
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
  EXPECT_THAT(run.err(), HasSubstr("rondarun:   slowest         rank 1 "));
  // Rank 0 spends all its time waiting for rank 1.
  EXPECT_THAT(run.err(), ContainsRegex("exposed         [0-9]+ to (9[0-9]|100) % of a rank's time"));
  EXPECT_EQ(run.LastLine(), "rondarun: the job was ended: received SIGTERM");
}

// Rank 1 is late in every step of every epoch.
void IsLateInEachEpoch() {
  elastic::State state({});
  elastic::run(state, [&](const elastic::Membership& membership) {
    while (true) {
      if (membership.rank == 1) absl::SleepFor(absl::Milliseconds(5));
      Step();
      state.step_done();
    }
  });
}

TEST(LauncherSummaryTest, FollowsAnElasticJobThroughItsEpochs) {
  std::vector<std::string> words = WithSummary("is_late_in_each_epoch", /*ranks=*/3);
  words.insert(words.begin(), {"--min-np", "2", "--blacklist-cooldown-range", "1000", "1000"});
  LauncherRun run(words);
  run.WaitForErr(" of the last 300 steps: the others wait for it for ");
  kill(NumberAfter(run.err(), "rondarun: rank 1 (host " + HostName() + ", pid "), SIGKILL);
  run.WaitForErr("rondarun: epoch 1: rank 1 (host ");
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
  EXPECT_THAT(
      run.err(),
      AllOf(HasSubstr("rondarun: summary of the job's epochs, on this host:\n"),
            HasSubstr("rondarun:   epochs          2 looked at, numbered 0 to 1, of 2 to 3 ranks; 2 made steps\n"),
            ContainsRegex("rondarun:   time            [0-9.]+ s from the first step to the end of the last, "
                          "[0-9.]+ s of it in steps, [0-9.]+ ms in each\n"),
            HasSubstr("rondarun: summary of epoch 1: 2 of 2 ranks, on this host:\n"),
            Not(HasSubstr("summary of epoch 0"))));
}

}  // namespace

std::vector<testing::RankProgram> SummaryPrograms() {
  return {{"steps_for_a_second", StepsForASecond},
          {"twenty_steps", TwentySteps},
          {"is_late_until_the_end", IsLateUntilTheEnd},
          {"is_late_in_each_epoch", IsLateInEachEpoch}};
}

}  // namespace ronda
