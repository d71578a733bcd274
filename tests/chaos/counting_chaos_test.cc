// SPDX-License-Identifier: Apache-2.0

// Tests that an elastic job uses each sample in exactly one step per pass over the data, although ranks are killed,
// stopped and asked to leave at random, and the job grows and shrinks.
//
// CHAOS_SECONDS is the duration in seconds (default: 10). To repeat the injuries of an earlier run, set CHAOS_SEED to
// the seed that it printed. The injuries are the same as long as the two jobs are in the same state.
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

// A file that makes the trainers exit once it exists.
class FinishFile {
 public:
  FinishFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }
  void Write() const { std::ofstream(path_) << ""; }

 private:
  const std::string path_ = absl::StrCat(::testing::TempDir(), "/finish.", getpid());
};

// Expects that all ranks print the same last line and no rank has miscounted. Returns the number of ranks.
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
  // Returns a condition that holds after the time `end`, once there have been at least `epochs` epochs. An epoch can
  // take long, because its members wait for a rank that died before it joined.
  const auto until = [](absl::Time end, int64_t epochs) {
    return [end, epochs](const JobLog& log) { return SteadyNow() >= end && log.epochs() >= epochs; };
  };
  chaos.InjureUntil(until(begin + time / 2, 5), ElasticChaos::Keeper::kChanges);
  chaos.InjureUntil(until(begin + time, 10), ElasticChaos::Keeper::kStays);
  finish.Write();
  chaos.ExpectGoodEnd();
  EXPECT_GE(ExpectCountedOnce(chaos.output()), 1u);
}

// Two new members join two others. Then one leaves, all but the oldest die, and two replacements join.
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
  // The job begins with two members, but the new ones may have joined by the time the output is read.
  run.ReadUntil(has_members(4), "four members");
  EXPECT_THAT(run.out(), ::testing::HasSubstr("2 ranks go on after step 0"));
  strike(log.members().back(), SIGTERM);
  run.ReadUntil(has_members(3), "three members that are left");
  const int oldest = log.members().front();
  const auto only_the_oldest = [&] {
    // Kills all members but the oldest. ReadUntil calls this repeatedly, because a replacement may join before the
    // oldest member is alone.
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
