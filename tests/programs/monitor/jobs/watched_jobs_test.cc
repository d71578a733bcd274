// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/watched_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "programs/monitor/jobs/job_control.h"
#include "runtime/base/config.h"
#include "runtime/monitor/rank_meter.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using testing::ForkedChild;
using ::testing::IsEmpty;

// Creates ranks in this process. The job ids have a prefix, because other tests may run on this host.
class WatchedJobsTest : public ::testing::Test {
 protected:
  static std::string Prefix() { return absl::StrCat("watched-jobs-test-", getpid(), "-"); }
  static std::unique_ptr<RankMeter> MakeRank(const std::string& job, int rank, int size) {
    return RankMeter::Create(
        {.job = Prefix() + job,
         .topology = {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .hostname = "node"}});
  }

  WatchedJobs Watch(const std::string& job = "") {
    const auto find = [this] {
      ++searches_;
      clock_ += cost_;
      FoundRanks found = FindRanks();
      std::erase_if(found.ranks, [](const auto& rank) { return !rank->identity().job.starts_with(Prefix()); });
      found.problems = problems_;
      return found;
    };
    using Search = WatchedJobs::Options::Search;
    return WatchedJobs({.is_watched = OfJobsNamed(Prefix() + job),
                        .search = job.empty() ? Search::kAlways : Search::kUntilComplete,
                        .find = find,
                        .stopwatch = [this] { return clock_; }});
  }

  // Returns the jobs and their ranks as text. "a:0,1 b:0" means ranks 0 and 1 of job a, and rank 0 of job b.
  static std::string RanksOf(const WatchedJobs& jobs) {
    std::string text;
    for (const JobSnapshot& job : jobs.Snapshots()) {
      absl::StrAppend(&text, text.empty() ? "" : " ", job.job.substr(Prefix().size()), ":");
      for (const RankSnapshot& rank : job.ranks) absl::StrAppend(&text, rank.rank() > 0 ? "," : "", rank.rank());
    }
    return text;
  }

  int searches_ = 0;
  FlightTime clock_;
  absl::Duration cost_;  // how long a search takes on that clock
  std::vector<std::string> problems_;
};

TEST_F(WatchedJobsTest, AreAllThatBegin) {
  WatchedJobs jobs = Watch();
  jobs.Sample(absl::Seconds(100));
  EXPECT_EQ(RanksOf(jobs), "");
  const auto a = MakeRank("a", 0, 1);
  jobs.Sample(absl::Seconds(100) + WatchedJobs::kSearchSoon);
  EXPECT_EQ(RanksOf(jobs), "a:0");
  const auto b = MakeRank("b", 0, 1);
  jobs.Sample(absl::Seconds(101) + WatchedJobs::kSearchSeldom);
  EXPECT_EQ(RanksOf(jobs), "a:0 b:0");
}

// The steps of a new job may be fast, so its ranks are read often at first.
TEST_F(WatchedJobsTest, AreReadAsOftenAsTheFastestOfThemAsksFor) {
  WatchedJobs jobs = Watch();
  jobs.Sample(absl::Seconds(1));
  EXPECT_EQ(jobs.NextPeriod(), WatchedJobs::kSearchAtStart);
  const std::unique_ptr<RankMeter> rank = MakeRank("a", 0, 1);
  for (int i = 0; i < 20; ++i) jobs.Sample(absl::Seconds(3) + i * JobSampler::kPeriod);
  EXPECT_EQ(jobs.NextPeriod(), JobSampler::kLongestPeriod) << "it does nothing";
  const std::unique_ptr<RankMeter> other = MakeRank("b", 0, 1);
  jobs.Sample(absl::Seconds(30));
  EXPECT_EQ(jobs.NextPeriod(), JobSampler::kPeriod);
}

TEST_F(WatchedJobsTest, AreLookedForSoonWhereAllRanksHaveEnded) {
  auto rank = MakeRank("a", 0, 1);
  WatchedJobs jobs = Watch("a");
  for (int i = 0; i < 20; ++i) jobs.Sample(absl::Seconds(3) + i * JobSampler::kPeriod);
  EXPECT_EQ(jobs.NextPeriod(), JobSampler::kLongestPeriod);
  rank.reset();
  jobs.Sample(absl::Seconds(5));
  EXPECT_EQ(jobs.NextPeriod(), WatchedJobs::kSearchAtStart);
}

TEST_F(WatchedJobsTest, AreOnlyThoseThatWereNamed) {
  const auto a = MakeRank("a", 0, 1), b = MakeRank("b", 0, 1);
  WatchedJobs jobs = Watch("b");
  jobs.Sample(absl::Seconds(100));
  EXPECT_EQ(RanksOf(jobs), "b:0");
}

TEST_F(WatchedJobsTest, TakeInRanksThatBeginLaterThanOthers) {
  const auto first = MakeRank("a", 0, 2);
  WatchedJobs jobs = Watch("a");
  jobs.Sample(absl::Seconds(100));
  EXPECT_EQ(RanksOf(jobs), "a:0");
  const auto second = MakeRank("a", 1, 2);
  jobs.Sample(absl::Seconds(101));
  EXPECT_EQ(RanksOf(jobs), "a:0,1");
}

TEST_F(WatchedJobsTest, AreNotLookedForInVain) {
  const auto rank = MakeRank("a", 0, 1);
  WatchedJobs named = Watch("a");
  WatchedJobs all = Watch();
  for (int tenths = 0; tenths < 300; ++tenths) named.Sample(absl::Seconds(100) + tenths * absl::Milliseconds(100));
  EXPECT_EQ(searches_, 1) << "the job is complete";
  searches_ = 0;
  for (int tenths = 0; tenths < 300; ++tenths) all.Sample(absl::Seconds(100) + tenths * absl::Milliseconds(100));
  EXPECT_EQ(searches_, 3) << "others may begin";
  const auto lone = MakeRank("b", 0, 2);
  WatchedJobs incomplete = Watch("b");
  searches_ = 0;
  for (int second = 0; second < 300; ++second) incomplete.Sample(absl::Seconds(100 + second));
  EXPECT_EQ(searches_, 61) << "ranks that have not come for a minute do not come";
}

TEST_F(WatchedJobsTest, AreLookedForForAFewThousandthsOfTheTimeAtMost) {
  cost_ = absl::Milliseconds(100);
  WatchedJobs jobs = Watch("a");
  for (int second = 0; second < WatchedJobs::kEagerSearches; ++second) jobs.Sample(absl::Seconds(100 + second));
  EXPECT_EQ(searches_, WatchedJobs::kEagerSearches) << "at the start, when jobs begin";
  searches_ = 0;
  for (int second = 0; second < 1000; ++second) jobs.Sample(absl::Seconds(200 + second));
  EXPECT_EQ(searches_, 20);
}

// The process ends its rank and begins a new one, as with shutdown() and init().
TEST_F(WatchedJobsTest, HaveTheNewWordsOfAProcessThatBeginsAgain) {
  for (const std::string name : {"", "a"}) {
    std::unique_ptr<RankMeter> rank = MakeRank("a", 0, 1);
    rank->counters().steps.Add(7);
    WatchedJobs jobs = Watch(name);
    jobs.Sample(absl::Seconds(100));
    ASSERT_EQ(jobs.Snapshots().front().ranks.front().sample.counts.steps, 7u);
    rank.reset();
    jobs.Sample(absl::Seconds(1000));
    jobs.Sample(absl::Seconds(1001));
    EXPECT_FALSE(jobs.Snapshots().front().ranks.front().is_alive) << "it has ended, and its process has not";
    EXPECT_EQ(jobs.Snapshots().front().ranks.front().sample.counts.steps, 7u) << "its last words";
    rank = MakeRank("a", 0, 1);
    rank->counters().steps.Add(2);
    jobs.Sample(absl::Seconds(1002));
    EXPECT_EQ(jobs.Snapshots().front().ranks.front().sample.counts.steps, 2u);
    EXPECT_TRUE(jobs.Snapshots().front().ranks.front().is_alive);
  }
}

TEST_F(WatchedJobsTest, AreForgottenWhenTheirRanksHaveEnded) {
  const std::string prefix = Prefix();
  ForkedChild child([&](const ForkedChild::SayReady& say_ready) -> std::string {
    const auto rank = RankMeter::Create({.job = prefix + "a", .topology = {.hostname = "node"}});
    say_ready();
    pause();
    return "";
  });
  child.WaitUntilReady();
  WatchedJobs jobs = Watch("a");
  jobs.Sample(absl::Seconds(100));
  EXPECT_EQ(jobs.size(), 1u);
  child.Kill(SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  jobs.Sample(absl::Seconds(102));
  EXPECT_EQ(jobs.size(), 1u) << "with its last words";
  jobs.ForgetEnded();
  EXPECT_EQ(jobs.size(), 0u);
}

TEST_F(WatchedJobsTest, GiveTheLastSnapshotsOfEpochsThatOthersHaveFollowed) {
  WatchedJobs jobs = Watch("a");
  std::unique_ptr<RankMeter> rank;
  for (int epoch = 0; epoch < 200; ++epoch) {
    rank.reset();
    jobs.Sample(absl::Seconds(100 + 10 * epoch));
    EXPECT_THAT(jobs.TakeEndedEpochs(), IsEmpty()) << "no other epoch has begun";
    rank = MakeRank(NameInEpoch("a", epoch), 0, 1);
    rank->counters().steps.Add(static_cast<uint64_t>(epoch));
    jobs.Sample(absl::Seconds(105 + 10 * epoch));
    const std::vector<JobSnapshot> ended = jobs.TakeEndedEpochs();
    ASSERT_EQ(ended.size(), epoch == 0 ? 0u : 1u);
    if (epoch > 0) {
      EXPECT_EQ(ended[0].job, Prefix() + NameInEpoch("a", epoch - 1));
      EXPECT_EQ(ended[0].ranks[0].sample.counts.steps, static_cast<uint64_t>(epoch - 1));
    }
    EXPECT_EQ(jobs.size(), 1u);
  }
}

TEST_F(WatchedJobsTest, KeepAnEpochWhileARankIsInIt) {
  auto first = MakeRank("a", 0, 2), second = MakeRank("a", 1, 2);
  WatchedJobs jobs = Watch("a");
  jobs.Sample(absl::Seconds(100));
  second.reset();
  const auto next = MakeRank("a@1", 0, 1);
  jobs.Sample(absl::Seconds(102));  // learns that a rank is missing
  jobs.Sample(absl::Seconds(103));  // and finds the others
  EXPECT_THAT(jobs.TakeEndedEpochs(), IsEmpty());
  EXPECT_EQ(RanksOf(jobs), "a:0,1 a@1:0");
  first.reset();
  jobs.Sample(absl::Seconds(104));
  EXPECT_EQ(jobs.TakeEndedEpochs().size(), 1u);
  EXPECT_EQ(RanksOf(jobs), "a@1:0");
}

// The first searches for jobs take long and find nothing, so later searches are rare.
TEST_F(WatchedJobsTest, AreLookedForOftenAgainWhereRanksHaveBegun) {
  cost_ = absl::Seconds(1);
  WatchedJobs jobs = Watch("a");
  for (int second = 0; second < WatchedJobs::kEagerSearches + 1; ++second) jobs.Sample(absl::Seconds(100 + second));
  auto rank = MakeRank("a", 0, 1);
  jobs.Sample(absl::Seconds(1000));
  ASSERT_EQ(RanksOf(jobs), "a:0");
  rank.reset();
  jobs.Sample(absl::Seconds(1002));
  rank = MakeRank("a@1", 0, 1);
  jobs.Sample(absl::Seconds(1002) + WatchedJobs::kSearchAtStart);
  EXPECT_EQ(RanksOf(jobs), "a:0 a@1:0");
}

TEST_F(WatchedJobsTest, SayEachProblemOnce) {
  problems_ = {"process 7: another layout"};
  WatchedJobs jobs = Watch();
  jobs.Sample(absl::Seconds(100));
  EXPECT_THAT(jobs.TakeProblems(), ElementsAre("process 7: another layout"));
  jobs.Sample(absl::Seconds(200));
  EXPECT_THAT(jobs.TakeProblems(), IsEmpty());
}

}  // namespace
}  // namespace ronda
