// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr FlightTime kNow = absl::Seconds(100);

// Returns a job of two ranks.
JobSnapshot Job() {
  JobSnapshot job = {.now = kNow, .buckets_measured = 17};
  for (const RankId rank : {0, 1}) {
    job.ranks.push_back(
        {.identity = {.topology = {.rank = rank, .hostname = "h"}, .process = {.pid = 40 + rank}},
         .sample = {.last = FlightEvent{.kind = FlightKind::kStarted, .name = "before", .time = absl::Seconds(1)}},
         .process_now = {.state = 'R'}});
  }
  return job;
}

TEST(WhyTextTest, NamesBothSidesOfAStandstill) {
  JobSnapshot job = Job();
  job.standstill = Standstill{.waiting = {0},
                              .blamed = {{.rank = 1, .why = Holdup::kStopped}},
                              .tensor = "conv1",
                              .since = kNow - absl::Seconds(3)};
  EXPECT_EQ(WhyText(job),
            "rank 0 waits in 'conv1' since 3.0 s\n"
            "for rank 1 (host h, pid 41): its process is stopped; it did last, 1m39s ago: started allreduce "
            "'before'\n");
}

StragglerVerdict Verdict(StragglerVerdict::Kind kind) {
  return {.kind = kind,
          .rank = 1,
          .steps = 100,
          .last_steps = 80,
          .waited = absl::Milliseconds(1600),
          .span = absl::Seconds(8),
          .since = absl::Seconds(92)};
}

TEST(WhyTextTest, NamesTheStragglerOfAJobThatGoesOn) {
  JobSnapshot job = Job();
  job.straggler = Verdict(StragglerVerdict::Kind::kChronic);
  EXPECT_EQ(WhyText(job),
            "rank 1 (host h, pid 41) came last into 80 of the last 100 steps: the others wait for it for 20 ms in "
            "each, 20 % of the time; its program submits its tensors later than the others\n");
  job.straggler.why = Holdup::kStarved;
  EXPECT_THAT(WhyText(job), HasSubstr("of the time; its process is starved of CPU"));
}

TEST(WhyTextTest, TellsOneOffFromChronic) {
  JobSnapshot job = Job();
  job.straggler = Verdict(StragglerVerdict::Kind::kOneOff);
  EXPECT_THAT(WhyText(job), HasSubstr("of the time, not for long enough to be called chronic"));
  job.straggler = Verdict(StragglerVerdict::Kind::kEvent);
  EXPECT_EQ(WhyText(job),
            "rank 1 (host h, pid 41) was late once in the last 100 steps, 8.0 s ago: the others waited for it for "
            "1.6 s\n");
}

TEST(WhyTextTest, UniformJobHasNothingToTell) {
  EXPECT_EQ(WhyText(Job()), "no rank holds the others up (17 collectives looked at)\n");
}

// Returns a job in which rank 1 is making steps and sending data.
JobSnapshot BusyJob() {
  JobSnapshot job = Job();
  job.ranks[1].sample.counts = {.schedules_begun = 1, .steps = 50};
  job.ranks[1].rates = {.steps_per_second = 50,
                        .bytes_per_second = 2e9,
                        .waited_share = 0.25,
                        .wire_ratio = 0.5,
                        .lateness = absl::Milliseconds(20),
                        .blamed_share = 0.125};
  return job;
}

constexpr char kLineOfRank1[] =
    "    1        41 runs            50      50.0   20.00 ms  12.5 %       25 %     2.000   0.50 locked\n";

JobOrigin Origin() {
  return {.name = "resnet50", .command = "python3 train.py", .launcher = 39, .started = absl::Seconds(100 - 3723)};
}

TEST(HeadTest, SaysWhatPeopleCallTheJob) {
  JobSnapshot job = BusyJob();
  job.job = "0123456789abcdef0123456789abcdef@2";
  job.ranks[0].identity.topology.size = 2;
  job.origin = Origin();
  EXPECT_EQ(HeadOf(job),
            "job resnet50 (01234567@2): 2 of 2 ranks on this host, 50.0 steps/s\n"
            "started 1h2m3s ago by rondarun, process 39: python3 train.py\n");
  job.origin.name.clear();
  job.origin.launcher = 0;
  job.ranks[1].is_here = false;
  EXPECT_EQ(HeadOf(job),
            "job 01234567@2: 1 of 2 ranks on this host, 50.0 steps/s\n"
            "started 1h2m3s ago: python3 train.py\n");
}

TEST(JobsTableTest, HasALineForEachJob) {
  JobSnapshot named = BusyJob();
  named.origin = Origin();
  named.ranks[0].identity.topology.size = 2;
  JobSnapshot other = Job();
  other.job = "0123456789abcdef0123456789abcdef";
  other.ranks[0].identity.topology.size = 2;
  other.origin = {.command = "./train", .started = absl::Seconds(90)};
  const std::vector<std::string> lines = absl::StrSplit(JobsTable({named, other}), '\n');
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "job      name       ranks here rondarun       age   steps/s command");
  EXPECT_THAT(lines[1], EndsWith(" resnet50       2 of 2       39    1h2m3s      50.0 python3 train.py"));
  EXPECT_EQ(lines[2], "01234567 -              2 of 2        -       10s       0.0 ./train");
}

TEST(TimeTextTest, HasTheUnitThatFits) {
  EXPECT_EQ(TimeText(absl::Nanoseconds(5300)), "5.3 us");
  EXPECT_EQ(TimeText(absl::Microseconds(999.6)), "1 ms");
  EXPECT_EQ(TimeText(absl::Milliseconds(49.62)), "49.6 ms");
  EXPECT_EQ(TimeText(absl::Seconds(3600)), "3600 s");
}

TEST(RanksTableTest, HasALineForEachRank) {
  JobSnapshot job = BusyJob();
  const std::string table = RanksTable(job);
  EXPECT_THAT(table, EndsWith(kLineOfRank1));
  EXPECT_THAT(table, HasSubstr("negotiated\n"));
  job.ranks[1].is_alive = false;
  EXPECT_THAT(RanksTable(job), HasSubstr(" 41 has ended "));
}

TEST(SummaryTest, BytesHaveTheUnitThatFits) {
  JobSnapshot job = BusyJob();
  job.ranks[0].sample.counts = {.payload_bytes = 1536, .wire_bytes = 768};
  EXPECT_THAT(SummaryOf(job), Contains("  bytes           1.5 KiB of a rank's tensors, 768 B as they travelled"));
}

TEST(SummaryTest, HasALineForEachNumber) {
  JobSnapshot job = BusyJob();
  job.ranks[0].identity.topology.size = 8;
  job.ranks[0].sample.counts = {.buckets_agreed = 10,
                                .buckets_scheduled = 190,
                                .schedules_left = 2,
                                .steps = 50,
                                .payload_bytes = uint64_t{3} << 30,
                                .wire_bytes = uint64_t{1536} << 20};
  job.ranks[0].totals = {.steps = 49,
                         .step_time = absl::Milliseconds(25),
                         .exposed = absl::Milliseconds(5),
                         .waited_share = 0.3,
                         .exposed_share = 0.2};
  job.ranks[1].totals = {.steps = 49, .step_time = absl::Milliseconds(25), .waited_share = 0.1, .blamed_share = 0.204};
  job.ranks[1].lateness.last = 12;
  EXPECT_THAT(
      SummaryOf(job),
      ElementsAre(
          "summary of 2 of 8 ranks, on this host:",  //
          "  steps           50",                    //
          "  time per step   25 ms",                 //
          "  exposed         0 to 20 % of a rank's time its program waited for tensors, 5 ms of each step at most",
          "  in collectives  10 to 30 % of a rank's time",  //
          "  slowest         rank 1 (host h, pid 41): last into 12 of 17 collectives, the others waited "
          "for it for 20.4 % of the time",  //
          "  bytes           3 GiB of a rank's tensors, 1.5 GiB as they travelled",
          "  schedule        190 of 200 collectives without negotiation, left 2 times"));
  job.buckets_missed = 5;
  EXPECT_EQ(SummaryOf(job).back(), "  unseen          5 collectives");
  EXPECT_THAT(SummaryOf(JobSnapshot{}), IsEmpty());
}

TEST(SummaryTest, JobThatWasLookedAtOnceHasNoShares) {
  JobSnapshot job = BusyJob();
  job.ranks[0].totals = {.step_time = absl::Milliseconds(25)};
  EXPECT_THAT(SummaryOf(job), AllOf(Contains("  time per step   25 ms"), SizeIs(SummaryOf(BusyJob()).size() + 1)));
}

TEST(SummaryTest, JobWithoutStepsHasNoTimes) {
  JobSnapshot job = Job();
  EXPECT_THAT(SummaryOf(job), SizeIs(3));
}

TEST(TopTextTest, RankThatCostsMostIsAtTheTop) {
  JobSnapshot job = BusyJob();
  job.job = "j";
  job.ranks[0].identity.topology.size = 8;
  const std::string text = TopText(job);
  EXPECT_THAT(text, StartsWith(HeadOf(job) + "17 collectives looked at\n"
                                             "no rank holds the others up\n\n rank "));
  EXPECT_LT(text.find(kLineOfRank1), text.find("\n    0 "));
  job.buckets_missed = 3;
  job.straggler = Verdict(StragglerVerdict::Kind::kChronic);
  EXPECT_THAT(TopText(job),
              HasSubstr("17 collectives looked at (3 more went by unseen)\nrank 1 (host h, pid 41) came"));
}

}  // namespace
}  // namespace ronda
