// SPDX-License-Identifier: Apache-2.0

// Tests that each sample is part of one step in each pass over the data. During the training, ranks of the elastic job
// are killed, stopped and asked to leave at random, and the job grows and shrinks.
//
// CHAOS_SECONDS is the duration in seconds (default: 10). CHAOS_SEED may be a seed that an earlier run has printed.
// Ranks then get the same injuries as in that run while the two jobs are in the same state.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "tests/chaos/elastic_chaos.h"

namespace ronda::chaos {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kTrainer[] = "tests/chaos/counting_trainer";

// A file whose existence makes the trainers end.
class FinishFile {
 public:
  FinishFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }
  void Write() const { std::ofstream(path_) << ""; }

 private:
  const std::string path_ = absl::StrCat(::testing::TempDir(), "/finish.", getpid());
};

// Expects that the last lines of all ranks are equal and that no rank has counted wrongly. Returns the number of ranks.
size_t ExpectCountedOnce(const std::string& output) {
  EXPECT_THAT(output, Not(HasSubstr("WRONG")));
  size_t finished = 0;
  std::set<std::string> ends;
  for (const std::string& line : Lines(output)) {
    const size_t at = line.find("finished: ");
    if (at == std::string::npos) continue;
    ++finished;
    ends.insert(line.substr(at));
  }
  EXPECT_THAT(ends, SizeIs(1));
  return finished;
}

TEST(CountingChaosTest, EverySampleCountsOnceInEachPassWhoeverDies) {
  const absl::Duration time = TimeForChaos().value_or(absl::Seconds(10));
  const bool is_short = time < absl::Minutes(1);
  const FinishFile finish;
  ElasticChaos chaos({.program = {kTrainer, finish.path()},
                      .seed = SeedOfChaos(),
                      .pause = is_short ? absl::Milliseconds(500) : absl::Seconds(2.5),
                      .stops = is_short ? 0 : static_cast<int>(absl::ToInt64Minutes(time))});
  const absl::Time begin = SteadyNow();
  // Returns a condition that is true after the time `end` if there have been at least `epochs` epochs. One epoch may
  // take long, because its members wait for a rank that has died before it joined.
  const auto until = [](absl::Time end, int64_t epochs) {
    return [end, epochs](const JobLog& log) { return SteadyNow() >= end && log.epochs() >= epochs; };
  };
  chaos.InjureUntil(until(begin + time / 2, 5), ElasticChaos::Keeper::kChanges);
  chaos.InjureUntil(until(begin + time, 10), ElasticChaos::Keeper::kStays);
  finish.Write();
  chaos.ExpectGoodEnd();
  EXPECT_GE(ExpectCountedOnce(chaos.output()), 1u);
}

// Two members become four because new members join. One member leaves, then all members but the oldest die, and two
// replacements join.
TEST(CountingChaosTest, TwoBecomeFourBecomeOneBecomeThree) {
  const FinishFile finish;
  LauncherRun run({"-np", "2", "--min-np", "1", "--max-np", "4", "--blacklist-cooldown-range", "1", "8", "--verbose",
                   kTrainer, finish.path()},
                  {.in_child = [] { dup2(STDOUT_FILENO, STDERR_FILENO); }});
  JobLog log(2);
  const auto has_members = [&](size_t count) {
    return [&, count] {
      log.Read(run.out());
      return log.members().size() == count && log.have_met() && log.HasTrained();
    };
  };
  const auto strike = [&](int member, int signo) {
    log.ExpectLossOf(member);
    kill(log.pids().at(member), signo);
  };
  // The job begins with two members, but the two new members may have joined before the output is read.
  run.ReadUntil(has_members(4), "four members");
  EXPECT_THAT(run.out(), ::testing::HasSubstr("2 ranks go on after step 0"));
  strike(log.members().back(), SIGTERM);
  run.ReadUntil(has_members(3), "three members that are left");
  const int oldest = log.members().front();
  const auto only_the_oldest = [&] {
    // Kills all members except the oldest one. This function runs again and again, because a replacement may join
    // before the oldest member is alone.
    for (const int member : log.members()) {
      if (member != oldest && IsRunning(log.pids().at(member))) strike(member, SIGKILL);
    }
    return has_members(1)();
  };
  run.ReadUntil(only_the_oldest, "the oldest alone");
  run.ReadUntil(has_members(3), "three members again");
  EXPECT_EQ(log.members().front(), oldest);
  finish.Write();
  EXPECT_EQ(run.Finish(), 0) << run.out();
  log.Read(run.out());
  EXPECT_EQ(ExpectCountedOnce(run.out()), 3u) << "the place of the member that left stays empty\n" << run.out();
  EXPECT_TRUE(std::is_sorted(log.beginnings().begin(), log.beginnings().end()));
}

}  // namespace
}  // namespace ronda::chaos
