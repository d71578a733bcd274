// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "programs/monitor/jobs/process_times.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kWatched = absl::Seconds(1);
constexpr FlightTime kNow = absl::Seconds(100);
constexpr Moment kMoment = {.now = kNow, .watched = kWatched, .threshold = absl::Milliseconds(500)};

FlightEvent Started(const std::string& name, FlightTime time) {
  return {.kind = FlightKind::kStarted, .op = OpType::kAllreduce, .name = name, .time = time};
}

// Returns a rank that has completed `buckets` buckets and is computing.
RankSnapshot Computing(RankId rank, uint64_t buckets) {
  RankSnapshot watched = {
      .identity = {.topology = {.rank = rank}}, .process_before = {.state = 'R'}, .process_now = {.state = 'R'}};
  watched.sample.buckets = buckets;
  watched.sample.last = Started("before", absl::Seconds(1));
  return watched;
}

// Returns a rank that has been in bucket `bucket` since the time `since`.
RankSnapshot InBucket(RankId rank, uint64_t bucket, FlightTime since) {
  RankSnapshot watched = Computing(rank, bucket);
  watched.process_now.state = 'S';
  watched.sample.current = bucket;
  watched.sample.current_since = since;
  watched.sample.counts.tensors_in_flight = 1;
  watched.sample.last = Started("conv1", since);
  return watched;
}

// Returns a rank that has waited for the coordinator's answer since the time `since`.
RankSnapshot Reported(RankId rank, uint64_t buckets, FlightTime since) {
  RankSnapshot watched = Computing(rank, buckets);
  watched.sample.counts.tensors_in_flight = 1;
  watched.sample.last = FlightEvent{.kind = FlightKind::kReported, .name = "conv1", .time = since};
  return watched;
}

RankSnapshot Stopped(RankSnapshot rank) {
  rank.process_now.state = 'T';
  return rank;
}

RankSnapshot Starved(RankSnapshot rank, absl::Duration waited) {
  rank.process_before.waiting = absl::Seconds(7);
  rank.process_now.waiting = absl::Seconds(7) + waited;
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
  const RankSnapshot waiting = InBucket(0, 8, kNow - absl::Seconds(1));
  const auto one = FindStandstill({waiting, Starved(Computing(1, 7), absl::Milliseconds(500))}, kMoment);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->blamed[0].why, Holdup::kStarved);
  const auto all = FindStandstill(
      {Starved(waiting, absl::Milliseconds(450)), Starved(Computing(1, 7), absl::Milliseconds(500))}, kMoment);
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->blamed[0].why, Holdup::kNotSubmitted) << "the host has too few cores for all";
}

TEST(FindStandstillTest, RankThatHasEndedWaitsForNobodyAndIsAwaited) {
  RankSnapshot ended = Computing(1, 7);
  ended.is_alive = false;
  const auto found = FindStandstill({InBucket(0, 8, kNow - absl::Seconds(1)), ended}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->blamed[0].why, Holdup::kEnded);
  RankSnapshot killed = InBucket(1, 8, kNow - absl::Seconds(1));
  killed.is_alive = false;
  const auto in_bucket = FindStandstill({InBucket(0, 8, kNow - absl::Seconds(1)), killed}, kMoment);
  ASSERT_TRUE(in_bucket.has_value());
  EXPECT_THAT(in_bucket->waiting, ElementsAre(0));
  EXPECT_THAT(Names(*in_bucket), ElementsAre(1));
  EXPECT_FALSE(FindStandstill({killed}, kMoment).has_value());
}

TEST(ParseSchedstatTest, TakesTheFirstTwoNumbers) {
  const auto times = ParseSchedstat("1500 2500 7\n");
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->running, absl::Nanoseconds(1500));
  EXPECT_EQ(times->waiting, absl::Nanoseconds(2500));
  for (const char* text : {"", "1500", "a b c", "1500 x"}) EXPECT_FALSE(ParseSchedstat(text).has_value()) << text;
}

TEST(StandstillTest, AllRanksOfAHostThatDoesNotAnswerAreBlamed) {
  RankSnapshot last_seen_waiting = InBucket(1, 7, kNow - absl::Seconds(3));
  RankSnapshot last_seen_computing = Computing(2, 6);
  last_seen_waiting.is_heard = last_seen_computing.is_heard = false;
  const auto found =
      FindStandstill({InBucket(0, 7, kNow - absl::Seconds(3)), last_seen_waiting, last_seen_computing}, kMoment);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->waiting, ElementsAre(0));
  EXPECT_THAT(Names(*found), ElementsAre(1, 2));
  for (const Standstill::Blamed& blamed : found->blamed) EXPECT_EQ(blamed.why, Holdup::kUnheard);
}

// -- The network --

// Returns four ranks, each on its own host, which spend the fraction `waited_share` of their time waiting.
std::vector<RankSnapshot> OnFourHosts(double waited_share) {
  std::vector<RankSnapshot> ranks;
  for (int r = 0; r < 4; ++r) {
    RankSnapshot& rank = ranks.emplace_back(Computing(r, 7));
    rank.identity.topology.hostname = std::string(1, static_cast<char>('a' + r));
    rank.rates.waited_share = waited_share;
  }
  return ranks;
}

HostLink LinkTo(const std::string& host, int milliseconds) {
  return {.host = host, .ranks = {host[0] - 'a'}, .round_trip = absl::Milliseconds(milliseconds)};
}

TEST(SlowNetworkTest, HostThatIsFarIsNamedWhileAllRanksWait) {
  const std::vector<HostLink> links = {LinkTo("b", 1), LinkTo("c", 50), LinkTo("d", 1)};
  const auto slow = FindSlowNetwork(OnFourHosts(0.5), links);
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->host, "c");
  EXPECT_THAT(slow->ranks, ElementsAre(2));
  EXPECT_EQ(slow->round_trip, absl::Milliseconds(50));
  EXPECT_EQ(slow->waited_share, 0.5);
  std::vector<RankSnapshot> one_computes = OnFourHosts(0.5);
  one_computes[1].rates.waited_share = 0.1;
  EXPECT_FALSE(FindSlowNetwork(one_computes, links).has_value());
}

TEST(SlowNetworkTest, OneOtherHostIsNamedIfItIsFar) {
  EXPECT_EQ(FindSlowNetwork(OnFourHosts(0.5), {LinkTo("b", 50)})->host, "b");
  EXPECT_FALSE(FindSlowNetwork(OnFourHosts(0.5), {LinkTo("b", 2)}).has_value());
  EXPECT_FALSE(FindSlowNetwork(OnFourHosts(0.9), {}).has_value());
}

TEST(SlowNetworkTest, OwnHostIsNamedIfAllOthersAreFar) {
  const auto slow = FindSlowNetwork(OnFourHosts(0.5), {LinkTo("b", 52), LinkTo("c", 50), LinkTo("d", 51)});
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->host, "a");
  EXPECT_THAT(slow->ranks, ElementsAre(0));
  EXPECT_EQ(slow->round_trip, absl::Milliseconds(50));
}

}  // namespace
}  // namespace ronda
