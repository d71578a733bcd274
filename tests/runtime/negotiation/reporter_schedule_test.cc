// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "runtime/negotiation/reporter.h"
#include "runtime/step/locked_schedule.h"
#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The reporter of rank 1 of 3. Its cache has "a", "b" and "c" with the ids 1, 2 and 3, and room for one more name.
class ReporterScheduleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ResponseList first;
    first.settings = {.cache_capacity = 4};
    for (const char* name : {"a", "b", "c"}) first.buckets.push_back({{Response{Allreduce(name), {}}}});
    ASSERT_TRUE(reporter_.Apply(first).ok());
  }

  static ResponseList Begin(std::vector<std::vector<CacheId>> buckets, uint64_t number = 1) {
    ResponseList list;
    list.schedule = Schedule{.number = number, .buckets = std::move(buckets)};
    return list;
  }

  // Applies the response list, and begins the schedule in it, if any.
  Reporter::Work Apply(const ResponseList& list) {
    auto work = reporter_.Apply(list);
    EXPECT_TRUE(work.ok()) << work.status();
    if (!work.ok()) return {};
    if (work->schedule) {
      schedule_.Begin(work->schedule->schedule, absl::UnixEpoch());
      buckets_ = work->schedule->buckets;
    }
    return *std::move(work);
  }

  void Submit(const TensorRequest& request) {
    if (!schedule_.locked()) return reporter_.Submit(request);
    schedule_.Submit(reporter_.Find(request));
  }

  // Carries out buckets of the schedule until no submitted tensor is left.
  void CarryOut() {
    while (schedule_.submitted() > 0) schedule_.Enter(Ballot::Result::kCarriedOut, absl::UnixEpoch());
  }

  void Unlock() {
    schedule_.VetoNext();
    schedule_.Enter(Ballot::Result::kVetoed, absl::UnixEpoch());
    schedule_.Unlock();
  }

  Reporter reporter_{{.rank = 1, .world_size = 3, .identity = "host h, pid 1"}};
  LockedSchedule schedule_;
  std::vector<AgreedBucket> buckets_;  // of the schedule
};

TEST_F(ReporterScheduleTest, ScheduleBeginsAfterTheBucketsOfItsList) {
  ResponseList list = Begin({{1, 2}, {3}});
  list.buckets = {{{CacheId{3}}}};
  const Reporter::Work work = Apply(list);
  EXPECT_THAT(work.buckets, SizeIs(1));
  ASSERT_TRUE(schedule_.locked());
  EXPECT_EQ(schedule_.number(), 1u);
}

TEST_F(ReporterScheduleTest, SubmissionsGoToTheScheduleAndNothingIsReported) {
  reporter_.TakeReport();
  Apply(Begin({{1, 2}, {3}}));
  Submit(Allreduce("b"));
  EXPECT_EQ(schedule_.Next(), std::nullopt);
  Submit(Allreduce("a"));
  EXPECT_FALSE(reporter_.has_news());
  ASSERT_EQ(schedule_.Next(), 0u);
  const AgreedBucket& bucket = buckets_.front();
  ASSERT_THAT(bucket.responses, SizeIs(2));
  EXPECT_EQ(bucket.responses[0]->request, Allreduce("a"));
  EXPECT_EQ(bucket.responses[1]->request, Allreduce("b"));
  EXPECT_THAT(bucket.participants->ranks(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(schedule_.unlocking());
}

TEST_F(ReporterScheduleTest, OtherRequestsCauseAnUnlock) {
  ResponseList more;
  more.buckets = {{{Response{Allreduce("known"), {}}}}};
  Apply(more);
  TensorRequest with_limits = Allreduce("a");
  with_limits.limits = WaitLimits{.deadline = absl::Seconds(1)};
  const TensorRequest causes[] = {Allreduce("new"), Allreduce("known"), Allreduce("a", {4}), with_limits,
                                  JoinOf(),         AddSet({0, 1}),     RemoveSet(1)};
  uint64_t number = 0;
  for (const TensorRequest& cause : causes) {
    Apply(Begin({{1}}, ++number));
    Submit(cause);
    EXPECT_TRUE(schedule_.unlocking()) << cause.name;
    Unlock();
  }
}

TEST_F(ReporterScheduleTest, EarlierReportIsForgotten) {
  Submit(Allreduce("a"));
  reporter_.TakeReport();
  Submit(Allreduce("b"));
  Submit(JoinOf());
  Apply(Begin({{1}, {2}, {3}}));
  Unlock();
  EXPECT_FALSE(reporter_.has_news());
  // After the eviction of "a", the rank does not report "a" again. After the join, the rank still reports later
  // requests by their ids.
  ResponseList evicting;
  for (const char* name : {"d", "e"}) evicting.buckets.push_back({{Response{Allreduce(name), {}}}});
  Apply(evicting);
  EXPECT_FALSE(reporter_.has_news());
  Submit(Allreduce("c"));
  EXPECT_THAT(reporter_.TakeReport().cached, ElementsAre(3));
}

TEST_F(ReporterScheduleTest, TensorSubmittedAgainAfterTheScheduleIsReported) {
  reporter_.TakeReport();
  Apply(Begin({{1, 2}}));
  Submit(Allreduce("a"));
  Submit(Allreduce("new"));
  Unlock();
  EXPECT_FALSE(schedule_.locked());
  Submit(Allreduce("a"));
  Submit(Allreduce("new"));
  ASSERT_TRUE(reporter_.has_news());
  const RankReport report = reporter_.TakeReport();
  EXPECT_EQ(report.schedule, 1u);
  EXPECT_THAT(report.cached, ElementsAre(1));
  EXPECT_THAT(report.requests, ElementsAre(Allreduce("new")));
  EXPECT_TRUE(report.identity.empty());
}

TEST_F(ReporterScheduleTest, IdentityThatWasNotSentYetIsSentAfterTheSchedule) {
  EXPECT_TRUE(reporter_.has_news());
  Apply(Begin({{1}}));
  Unlock();
  ASSERT_TRUE(reporter_.has_news());
  EXPECT_EQ(reporter_.TakeReport().identity, "host h, pid 1");
}

TEST_F(ReporterScheduleTest, ShutdownInAScheduleIsReportedAfterwards) {
  reporter_.TakeReport();
  Apply(Begin({{1}}));
  EXPECT_FALSE(reporter_.has_news());
  reporter_.ShutDown();
  Unlock();
  ASSERT_TRUE(reporter_.has_news());
  EXPECT_EQ(reporter_.TakeReport().presence, RankReport::Presence::kShuttingDown);
}

TEST_F(ReporterScheduleTest, ShutdownThatCrossedTheScheduleIsReportedOnceMore) {
  reporter_.ShutDown();
  EXPECT_EQ(reporter_.TakeReport().presence, RankReport::Presence::kShuttingDown);
  Apply(Begin({{1}}));
  Unlock();
  const RankReport report = reporter_.TakeReport();
  EXPECT_EQ(report.presence, RankReport::Presence::kShuttingDown);
  EXPECT_EQ(report.schedule, 1u);
}

TEST_F(ReporterScheduleTest, CacheIsTheSameAfterAScheduleHoweverOftenItWentRound) {
  Apply(Begin({{1}, {3}}));
  for (int round = 0; round < 3; ++round) {
    for (const char* name : {"a", "c"}) Submit(Allreduce(name));
    CarryOut();
  }
  EXPECT_EQ(schedule_.progress().rounds, 3u);
  Unlock();
  ResponseList evicting;  // evicts the oldest entry, as if the schedule had carried out nothing
  for (const char* name : {"d", "e"}) evicting.buckets.push_back({{Response{Allreduce(name), {}}}});
  Apply(evicting);
  reporter_.TakeReport();
  Submit(Allreduce("a"));
  Submit(Allreduce("b"));
  const RankReport report = reporter_.TakeReport();
  EXPECT_THAT(report.cached, ElementsAre(2));
  EXPECT_THAT(report.requests, ElementsAre(Allreduce("a")));
}

TEST_F(ReporterScheduleTest, ReportSaysWhetherTheProgramMayHaveWaited) {
  const auto report = [&](const char* tensor) {
    Submit(Allreduce(tensor));
    return reporter_.TakeReport().waited;
  };
  EXPECT_EQ(report("a"), RankReport::Waited::kPerhaps);
  EXPECT_EQ(report("b"), RankReport::Waited::kPerhaps) << "the program has told nothing";
  reporter_.RecordCompletions(7);
  EXPECT_EQ(report("a"), RankReport::Waited::kPerhaps);
  reporter_.RecordCompletions(7);
  EXPECT_EQ(report("b"), RankReport::Waited::kNo);
  reporter_.RecordCompletions(8);
  EXPECT_EQ(report("c"), RankReport::Waited::kPerhaps);
  // The coordinator may not have received the reports that the rank sent before the schedule.
  Apply(Begin({{1}}));
  Unlock();
  reporter_.RecordCompletions(8);
  EXPECT_EQ(report("a"), RankReport::Waited::kPerhaps);
}

TEST_F(ReporterScheduleTest, SettingsMayChangeButForTheCache) {
  ResponseList list;
  list.settings = {.cache_capacity = 4, .cycle_time = absl::Milliseconds(1), .chunk_bytes = 4096};
  EXPECT_EQ(Apply(list).settings, list.settings);
  reporter_.TakeReport();
  Submit(Allreduce("a"));
  EXPECT_THAT(reporter_.TakeReport().cached, ElementsAre(1)) << "the cache has been kept";
  list.settings->cache_capacity = 5;
  EXPECT_EQ(reporter_.Apply(list).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReporterScheduleTest, ScheduleTheCoordinatorCannotHaveSentIsRefused) {
  ResponseList more;
  more.buckets = {{{Response{{.name = "send", .op = OpType::kSendRecv, .root = 0, .receiver = 1}, {}}}}};
  Apply(more);
  const std::vector<ResponseList> lists = {Begin({{1}}, 2), Begin({{1}}, 0), Begin({{9}}), Begin({{4}}), Begin({{}})};
  for (size_t i = 0; i < lists.size(); ++i) {
    EXPECT_EQ(reporter_.Apply(lists[i]).status().code(), absl::StatusCode::kInvalidArgument) << "list " << i;
  }
  Apply(Begin({{1}}));
  Unlock();
  EXPECT_EQ(reporter_.Apply(Begin({{1}}, 1)).status().code(), absl::StatusCode::kInvalidArgument) << "once more";
  Apply(Begin({{1}}, 2));
}

}  // namespace
}  // namespace ronda
