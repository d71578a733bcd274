#include "runtime/control/tree/control_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"

namespace ronda {

void PrintTo(const SharedReport& report, std::ostream* out) {
  *out << '"' << report.payload << "\" from " << ::testing::PrintToString(report.ranks);
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kEverything = size_t{1} << 30;

TEST(ReportBatchTest, EqualReportsBecomeOneWithTheirRanksInOrder) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {7}});
  batch.Add({.payload = "b", .ranks = {2}});
  batch.Add({.payload = "a", .ranks = {1, 3}});
  EXPECT_THAT(batch.Take(kEverything), ElementsAre(SharedReport{"a", {1, 3, 7}}, SharedReport{"b", {2}}));
  EXPECT_TRUE(batch.empty());
}

TEST(ReportBatchTest, ReportsOfOneRankKeepTheirOrder) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {1}});
  batch.Add({.payload = "a", .ranks = {1}});
  EXPECT_THAT(batch.Take(kEverything),
              ElementsAre(SharedReport{"a", {1}}, SharedReport{"b", {1}}, SharedReport{"a", {1}}));
}

TEST(ReportBatchTest, RankWithALaterReportDoesNotJoinAnEarlierOne) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {2}});
  batch.Add({.payload = "a", .ranks = {2}});
  EXPECT_THAT(batch.Take(kEverything),
              ElementsAre(SharedReport{"a", {1}}, SharedReport{"b", {2}}, SharedReport{"a", {2}}));
}

TEST(ReportBatchTest, ManyEqualReportsOfOneRankAreNotJoined) {
  ReportBatch batch;
  for (int i = 0; i < 3; ++i) batch.Add({.payload = "a", .ranks = {1}});
  for (int i = 0; i < 3; ++i) batch.Add({.payload = "a", .ranks = {2}});
  size_t from_two = 0;
  for (const SharedReport& report : batch.Take(kEverything)) {
    EXPECT_EQ(report.payload, "a");
    from_two += report.ranks.back() == 2;
  }
  EXPECT_EQ(from_two, 3U);
}

TEST(ReportBatchTest, TakesNoMoreThanAskedForButOneReportAtLeast) {
  ReportBatch batch;
  batch.Add({.payload = std::string(100, 'a'), .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {1}});
  batch.Add({.payload = "c", .ranks = {1}});
  EXPECT_EQ(batch.Take(10).size(), 1U);
  EXPECT_EQ(batch.Take(2).size(), 2U);
  EXPECT_THAT(batch.Take(2), IsEmpty());
}

TEST(ReportBatchTest, WhatHasBeenTakenIsJoinedByNothing) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {1}});
  EXPECT_THAT(batch.Take(1), ElementsAre(SharedReport{"a", {1}}));
  batch.Add({.payload = "a", .ranks = {2}});
  EXPECT_THAT(batch.Take(kEverything), ElementsAre(SharedReport{"b", {1}}, SharedReport{"a", {2}}));
}

// Against what it is to be: each rank's reports, in order, none lost and none twice.
TEST(ReportBatchTest, RandomReportsComeOutInTheOrderOfEachRank) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  ReportBatch batch;
  std::map<RankId, std::string> put, taken;
  const auto take = [&](size_t bytes) {
    for (const SharedReport& report : batch.Take(bytes)) {
      for (const RankId rank : report.ranks) taken[rank] += report.payload;
    }
  };
  for (int i = 0; i < 3000; ++i) {
    const RankId rank = static_cast<RankId>(random() % 5);
    const std::string payload(1, static_cast<char>('a' + random() % 3));
    batch.Add({.payload = payload, .ranks = {rank}});
    put[rank] += payload;
    if (random() % 8 == 0) take(random() % 6);
  }
  take(kEverything);
  EXPECT_EQ(taken, put);
}

}  // namespace
}  // namespace ronda
