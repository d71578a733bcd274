#include "runtime/monitor/jobs/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/monitor/jobs/process_times.h"
#include "runtime/monitor/jobs/reports.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kWatched = absl::Seconds(1);
constexpr FlightTime kNow = absl::Seconds(100);
constexpr Moment kMoment = {.now = kNow, .watched = kWatched, .patience = absl::Milliseconds(500)};

FlightEvent Started(const std::string& name, FlightTime time) {
  return {.kind = FlightKind::kStarted, .op = OpType::kAllreduce, .name = name, .time = time};
}

// A rank that has left `buckets` buckets, and computes.
WatchedRank Computing(RankId rank, uint64_t buckets) {
  WatchedRank watched = {.rank = rank, .before = {.state = 'R'}, .after = {.state = 'R'}};
  watched.sample.buckets = buckets;
  watched.sample.last = Started("before", absl::Seconds(1));
  return watched;
}

// A rank that is in bucket `bucket`.
WatchedRank InBucket(RankId rank, uint64_t bucket, FlightTime since) {
  WatchedRank watched = Computing(rank, bucket);
  watched.after.state = 'S';
  watched.sample.current = bucket;
  watched.sample.current_since = since;
  watched.sample.counts.tensors_in_flight = 1;
  watched.sample.last = Started("conv1", since);
  return watched;
}

// A rank that waits for the coordinator's answer.
WatchedRank Reported(RankId rank, uint64_t buckets, FlightTime since) {
  WatchedRank watched = Computing(rank, buckets);
  watched.sample.counts.tensors_in_flight = 1;
  watched.sample.last = FlightEvent{.kind = FlightKind::kReported, .name = "conv1", .time = since};
  return watched;
}

WatchedRank Stopped(WatchedRank rank) {
  rank.after.state = 'T';
  return rank;
}

WatchedRank Starved(WatchedRank rank, absl::Duration waited) {
  rank.before.waiting = absl::Seconds(7);
  rank.after.waiting = absl::Seconds(7) + waited;
  return rank;
}

std::vector<RankId> Names(const Standstill& found) {
  std::vector<RankId> names;
  for (const Standstill::Blamed& blamed : found.blamed) names.push_back(blamed.rank);
  return names;
}

TEST(FindStandstillTest, RankThatHasNotComeIsBlamedWithTheTensorThatOthersWaitFor) {
  const auto found = FindStandstill(
      {InBucket(0, 8, kNow - absl::Seconds(3)), Computing(1, 7), InBucket(2, 8, kNow - absl::Seconds(4))}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->waiting, ElementsAre(0, 2));
  EXPECT_THAT(Names(*found), ElementsAre(1));
  EXPECT_EQ(found->blamed[0].why, Holdup::kNotSubmitted);
  EXPECT_EQ(found->tensor, "conv1");
  EXPECT_EQ(found->since, kNow - absl::Seconds(4));
}

TEST(FindStandstillTest, ShortWaitsAreNone) {
  EXPECT_FALSE(FindStandstill({InBucket(0, 8, kNow - absl::Milliseconds(400)), Computing(1, 7)}, kMoment).has_value());
}

TEST(FindStandstillTest, RanksThatComputeWaitForNobody) {
  EXPECT_FALSE(FindStandstill({Computing(0, 7), Computing(1, 7)}, kMoment).has_value());
}

TEST(FindStandstillTest, StoppedProcessIsTheReason) {
  const auto found = FindStandstill({InBucket(0, 8, kNow - absl::Seconds(1)), Stopped(Computing(1, 7))}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->blamed[0].why, Holdup::kStopped);
}

TEST(FindStandstillTest, RankThatWasStoppedInTheBucketIsBlamedForIt) {
  const auto found = FindStandstill(
      {InBucket(0, 8, kNow - absl::Seconds(1)), Stopped(InBucket(1, 8, kNow - absl::Seconds(2)))}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->waiting, ElementsAre(0));
  EXPECT_THAT(Names(*found), ElementsAre(1));
  EXPECT_EQ(found->blamed[0].why, Holdup::kStopped);
}

TEST(FindStandstillTest, AllInTheSameBucketIsTheNetwork) {
  const auto found =
      FindStandstill({InBucket(0, 8, kNow - absl::Seconds(1)), InBucket(1, 8, kNow - absl::Seconds(1))}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->blamed[0].why, Holdup::kNetwork);
}

TEST(FindStandstillTest, NegotiatedTensorIsAwaitedFromTheRankWithNothingInFlight) {
  const auto found = FindStandstill({Reported(0, 7, kNow - absl::Seconds(2)), Computing(1, 7)}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->waiting, ElementsAre(0));
  EXPECT_THAT(Names(*found), ElementsAre(1));
  EXPECT_EQ(found->tensor, "conv1");
}

TEST(FindStandstillTest, StoppedCoordinatorIsBlamedForAnswersThatDoNotCome) {
  const auto found = FindStandstill(
      {Stopped(Reported(0, 7, kNow - absl::Seconds(2))), Reported(1, 7, kNow - absl::Seconds(2))}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(Names(*found), ElementsAre(0));
  EXPECT_EQ(found->blamed[0].why, Holdup::kStopped);
}

TEST(FindStandstillTest, RankIsStarvedIfItWaitsForCoresMoreThanTheOthers) {
  const WatchedRank waiting = InBucket(0, 8, kNow - absl::Seconds(1));
  const auto one = FindStandstill({waiting, Starved(Computing(1, 7), absl::Milliseconds(500))}, kMoment);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->blamed[0].why, Holdup::kStarved);
  const auto all = FindStandstill(
      {Starved(waiting, absl::Milliseconds(450)), Starved(Computing(1, 7), absl::Milliseconds(500))}, kMoment);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->blamed[0].why, Holdup::kNotSubmitted) << "the host has too few cores for all";
}

// Ranks that enter `buckets` buckets, one every 100 ms; rank r comes lateness[r] ms late.
std::vector<WatchedRank> InSteps(int buckets, const std::vector<std::vector<int>>& lateness) {
  std::vector<WatchedRank> ranks;
  for (size_t r = 0; r < lateness.size(); ++r) {
    WatchedRank rank = Computing(static_cast<RankId>(r), static_cast<uint64_t>(buckets));
    for (int n = std::max(1, buckets - RankWords::kEntries + 1); n <= buckets; ++n) {
      const int late = lateness[r][static_cast<size_t>(n) % lateness[r].size()];
      rank.sample.entries.push_back(
          {.bucket = static_cast<uint64_t>(n), .time = static_cast<uint64_t>(n * 100 + late) * 1'000'000});
    }
    ranks.push_back(rank);
  }
  return ranks;
}

TEST(MeasureLatenessTest, LatenessIsTheEntryMinusTheFirstRanks) {
  const Lateness lateness = MeasureLateness(InSteps(10, {{0}, {20}, {5}}), kWatched);
  EXPECT_EQ(lateness.buckets, 10);
  EXPECT_EQ(lateness.span, absl::Milliseconds(920));
  EXPECT_EQ(lateness.ranks[0].total, absl::ZeroDuration());
  EXPECT_EQ(lateness.ranks[1].total, absl::Milliseconds(200));
  EXPECT_EQ(lateness.ranks[1].last, 10);
  EXPECT_EQ(lateness.ranks[1].blamed, absl::Milliseconds(200));
  EXPECT_EQ(lateness.ranks[2].total, absl::Milliseconds(50));
  EXPECT_EQ(lateness.ranks[2].last, 0);
}

TEST(MeasureLatenessTest, BucketsThatARankHasNotReachedOrNotAnyMoreDoNotCount) {
  std::vector<WatchedRank> ranks = InSteps(300, {{0}, {20}});
  ranks[0].sample.buckets = 299;
  ranks[0].sample.entries.pop_back();
  const Lateness lateness = MeasureLateness(ranks, kWatched);
  EXPECT_EQ(lateness.buckets, 299 - (300 - RankWords::kEntries + 2) + 1);
}

TEST(MeasureLatenessTest, NoRanksAreNotLate) { EXPECT_THAT(MeasureLateness({}, kWatched).ranks, IsEmpty()); }

TEST(FindStragglerTest, RankThatIsOftenLateIsOne) {
  const Lateness lateness = MeasureLateness(InSteps(100, {{0}, {0}, {20}, {0}}), kWatched);
  const RankLateness* const straggler = FindStraggler(lateness);
  ASSERT_NE(straggler, nullptr);
  EXPECT_EQ(straggler->rank, 2);
}

TEST(FindStragglerTest, UniformRanksHaveNone) {
  // Each is the last one in turn, and with two ranks each is so half of the time.
  EXPECT_EQ(FindStraggler(
                MeasureLateness(InSteps(100, {{20, 0, 0, 0}, {0, 20, 0, 0}, {0, 0, 20, 0}, {0, 0, 0, 20}}), kWatched)),
            nullptr);
  EXPECT_EQ(FindStraggler(MeasureLateness(InSteps(100, {{20, 0}, {0, 20}}), kWatched)), nullptr);
}

TEST(FindStragglerTest, LittleLatenessIsNone) {
  EXPECT_EQ(FindStraggler(MeasureLateness(InSteps(100, {{0}, {4}}), kWatched)), nullptr) << "4 % of the time";
  EXPECT_NE(FindStraggler(MeasureLateness(InSteps(100, {{0}, {6}}), kWatched)), nullptr) << "6 %";
}

TEST(FindStragglerTest, FewBucketsTellNothing) {
  EXPECT_EQ(FindStraggler(MeasureLateness(InSteps(19, {{0}, {20}}), kWatched)), nullptr);
  EXPECT_NE(FindStraggler(MeasureLateness(InSteps(20, {{0}, {20}}), kWatched)), nullptr);
}

std::vector<SeenRank> ReportsOf(const std::vector<WatchedRank>& ranks) {
  std::vector<SeenRank> reports;
  for (const WatchedRank& rank : ranks) {
    reports.push_back(
        {.identity = {.topology = {.rank = rank.rank, .hostname = "h"}, .process = {.pid = 40 + rank.rank}},
         .now = rank});
  }
  return reports;
}

TEST(WhyTextTest, NamesBothSidesOfAStandstill) {
  const auto reports = ReportsOf({InBucket(0, 8, kNow - absl::Seconds(3)), Stopped(Computing(1, 7))});
  EXPECT_EQ(
      WhyText(reports, kMoment),
      "rank 0 waits in 'conv1' since 3.0 s\n"
      "for rank 1 (host h, pid 41): its process is stopped; it did last, 1m39s ago: started allreduce 'before'\n");
}

TEST(WhyTextTest, NamesTheStragglerOfAJobThatGoesOn) {
  const std::string text = WhyText(ReportsOf(InSteps(100, {{0}, {20}})), kMoment);
  EXPECT_THAT(text, HasSubstr("rank 1 (host h, pid 41) came last into 100 of the last 100 collectives, 20.0 ms after"));
  EXPECT_THAT(text, HasSubstr("20 % of the time"));
  EXPECT_THAT(text, HasSubstr("submits its tensors later than the others"));
}

TEST(WhyTextTest, UniformJobHasNothingToTell) {
  EXPECT_THAT(WhyText(ReportsOf(InSteps(100, {{0}, {0}})), kMoment), HasSubstr("no rank holds the others up"));
}

TEST(RanksTableTest, HasALineForEachRank) {
  std::vector<WatchedRank> ranks = InSteps(100, {{0}, {20}});
  ranks[1].sample.counts = {
      .schedules_begun = 1, .steps = 50, .payload_bytes = 2'000'000'000, .wire_bytes = 1'000'000'000};
  const std::string table = RanksTable(ReportsOf(ranks), MeasureLateness(ranks, kWatched), kWatched);
  EXPECT_THAT(table,
              HasSubstr("    1        41 runs            50      50.0     2.000        0 % 20.00 ms    0.50 locked"));
  EXPECT_THAT(table, HasSubstr("negotiated\n"));
}

TEST(ParseSchedstatTest, TakesTheFirstTwoNumbers) {
  const auto times = ParseSchedstat("1500 2500 7\n");
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->running, absl::Nanoseconds(1500));
  EXPECT_EQ(times->waiting, absl::Nanoseconds(2500));
  for (const char* text : {"", "1500", "a b c", "1500 x"}) EXPECT_FALSE(ParseSchedstat(text).has_value()) << text;
}

}  // namespace
}  // namespace ronda
