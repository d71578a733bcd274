// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReporterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ResponseList first;
    first.settings = {.cache_capacity = 2};
    ASSERT_TRUE(reporter_.Apply(first).ok());
  }

  Reporter::Work Apply(std::vector<Bucket> buckets, std::vector<TensorError> errors = {}) {
    ResponseList list;
    list.buckets = std::move(buckets);
    list.errors = std::move(errors);
    auto work = reporter_.Apply(list);
    EXPECT_TRUE(work.ok()) << work.status();
    return work.ok() ? *std::move(work) : Reporter::Work();
  }

  absl::StatusCode CodeOf(Bucket bucket) {
    ResponseList list;
    list.buckets = {std::move(bucket)};
    return reporter_.Apply(list).status().code();
  }

  static Response Of(TensorRequest request) { return {std::move(request), {}}; }

  Reporter reporter_{{.rank = 1, .world_size = 3}};
};

using Program = RankReport::Program;

TEST_F(ReporterTest, AProgramThatWaitsIsReportedOnce) {
  reporter_.RecordProgram(Program::kWaits);
  ASSERT_TRUE(reporter_.has_news());
  EXPECT_EQ(reporter_.TakeReport().program, Program::kWaits);
  reporter_.RecordProgram(Program::kWaits);
  EXPECT_FALSE(reporter_.has_news());
  reporter_.RecordProgram(Program::kRuns);
  ASSERT_TRUE(reporter_.has_news());
  EXPECT_EQ(reporter_.TakeReport().program, Program::kRuns);
}

TEST_F(ReporterTest, AProgramThatSubmitsRuns) {
  reporter_.RecordProgram(Program::kWaits);
  reporter_.Submit(Allreduce("a"));
  EXPECT_EQ(reporter_.TakeReport().program, Program::kRuns);
  reporter_.RecordProgram(Program::kWaits);
  reporter_.TakeReport();
  reporter_.Submit(Allreduce("b"));
  EXPECT_EQ(reporter_.TakeReport().program, Program::kRuns);
}

TEST_F(ReporterTest, AnAnswerTakesBackThatTheProgramWaits) {
  reporter_.RecordProgram(Program::kWaits);
  reporter_.TakeReport();
  Apply({{{Of(Allreduce("a"))}}});
  ASSERT_TRUE(reporter_.has_news());
  EXPECT_EQ(reporter_.TakeReport().program, Program::kRuns);
  EXPECT_FALSE(reporter_.has_news());
}

TEST_F(ReporterTest, KnownRequestIsReportedById) {
  Apply({{{Of(Allreduce("a"))}}});
  reporter_.Submit(Allreduce("a"));
  reporter_.Submit(Allreduce("b"));
  const RankReport report = reporter_.TakeReport();
  EXPECT_THAT(report.cached, ElementsAre(1));
  EXPECT_THAT(report.requests, ElementsAre(Allreduce("b")));
  EXPECT_FALSE(reporter_.has_news());
}

TEST_F(ReporterTest, IdsAreReportedInTheOrderInWhichTheyWereFirstAgreedOn) {
  Apply({{{Of(Allreduce("a"))}}, {{Of(Allreduce("b"))}}});
  reporter_.Submit(Allreduce("b"));
  reporter_.Submit(Allreduce("a"));
  EXPECT_THAT(reporter_.TakeReport().cached, ElementsAre(1, 2));
}

TEST_F(ReporterTest, EvictedIdThatWasReportedIsRepeatedInFull) {
  Apply({{{Of(Allreduce("a"))}}});
  reporter_.Submit(Allreduce("a"));
  reporter_.TakeReport();
  Apply({{{Of(Allreduce("b"))}}, {{Of(Allreduce("c"))}}});
  ASSERT_TRUE(reporter_.has_news());
  EXPECT_THAT(reporter_.TakeReport().repeated, ElementsAre(RepeatedRequest{1, Allreduce("a")}));
}

TEST_F(ReporterTest, EvictedIdThatWasNotYetReportedIsReportedInFullBeforeAnythingElse) {
  Apply({{{Of(Allreduce("a"))}}});
  reporter_.Submit(Allreduce("a"));
  reporter_.Submit(JoinOf());
  Apply({{{Of(Allreduce("b"))}}, {{Of(Allreduce("c"))}}});
  const RankReport report = reporter_.TakeReport();
  EXPECT_THAT(report.cached, IsEmpty());
  EXPECT_THAT(report.repeated, IsEmpty());
  EXPECT_THAT(report.requests, ElementsAre(Allreduce("a"), JoinOf()));
}

TEST_F(ReporterTest, EvictedIdThatTheSameListAnswersIsNotRepeated) {
  Apply({{{Of(Allreduce("a"))}}});
  reporter_.Submit(Allreduce("a"));
  reporter_.TakeReport();
  Apply({{{Of(Allreduce("b"))}}, {{Of(Allreduce("c"))}}}, {{"a", 0, absl::UnavailableError("gone"), {1}}});
  EXPECT_FALSE(reporter_.has_news());
  Apply({{{Of(Allreduce("a"))}}});
  reporter_.Submit(Allreduce("a"));
  reporter_.TakeReport();
  Apply({{{CacheId{4}}}, {{Of(Allreduce("d"))}}, {{Of(Allreduce("e"))}}});
  EXPECT_FALSE(reporter_.has_news());
}

TEST_F(ReporterTest, ReportsAfterAJoinHaveNoIdsUntilAllHaveJoined) {
  Apply({{{Of(Allreduce("a"))}}});
  reporter_.Submit(JoinOf());
  reporter_.Submit(Allreduce("a"));
  EXPECT_THAT(reporter_.TakeReport().requests, ElementsAre(JoinOf(), Allreduce("a")));
  Apply({{{Of(JoinOf())}}}, {{"a", 0, absl::FailedPreconditionError("joined"), {1}}});
  reporter_.Submit(Allreduce("a"));
  EXPECT_THAT(reporter_.TakeReport().cached, ElementsAre(1));
}

TEST_F(ReporterTest, ErrorsOfOtherRanksAreNotItsOwn) {
  const Reporter::Work work =
      Apply({}, {{"a", 0, absl::UnavailableError("x"), {0, 2}}, {"b", 0, absl::UnavailableError("y"), {0, 1}}});
  ASSERT_THAT(work.errors, SizeIs(1));
  EXPECT_EQ(work.errors[0].name, "b");
}

TEST_F(ReporterTest, BucketsComeWithTheirRanks) {
  TensorRequest add = AddSet({0, 2});
  add.subject = 1;
  const TensorRequest send = {.name = "s", .op = OpType::kSendRecv, .root = 2, .receiver = 0};
  TensorRequest removal = RemoveSet(1);
  const Reporter::Work work = Apply({{{Of(add)}},
                                     {{Of(OnSet(1, Allreduce("a")))}},
                                     {{Of(Allreduce("b"))}, {1}, TensorRequest::Absent::kCountedAsZeros},
                                     {{Of(send)}},
                                     {{Of(removal)}}});
  ASSERT_THAT(work.buckets, SizeIs(5));
  EXPECT_EQ(work.buckets[1].process_set, 1u);
  EXPECT_THAT(work.buckets[1].members->ranks(), ElementsAre(0, 2));
  EXPECT_EQ(work.buckets[1].participants, work.buckets[1].members);
  EXPECT_THAT(work.buckets[2].members->ranks(), ElementsAre(0, 1, 2));
  EXPECT_THAT(work.buckets[2].participants->ranks(), ElementsAre(0, 2));
  EXPECT_EQ(work.buckets[2].absent, TensorRequest::Absent::kCountedAsZeros);
  EXPECT_THAT(work.buckets[3].participants->ranks(), ElementsAre(0, 2));
  EXPECT_EQ(reporter_.process_sets().Find(1), nullptr);
  EXPECT_TRUE(reporter_.process_sets().Known(1));
}

TEST_F(ReporterTest, ListTheCoordinatorCannotHaveSentIsRefused) {
  TensorRequest wrong_id = AddSet({0, 2});
  wrong_id.subject = 2;
  TensorRequest wrong_ranks = AddSet({0, 3});
  wrong_ranks.subject = 1;
  const std::vector<Bucket> buckets = {
      {{CacheId{9}}},
      {},
      {{Of(wrong_id)}},
      {{Of(wrong_ranks)}},
      {{Of(RemoveSet(0))}},
      {{Of(RemoveSet(4))}},
      {{Of(OnSet(3, Allreduce("a")))}},
      {{Of(Allreduce("a"))}, {3}},
      {{Of({.name = "g", .op = OpType::kAllgather, .shape = {0}})}},
      {{Response{{.name = "g", .op = OpType::kAllgather, .shape = {0}}, {1, 2}}}},
      {{Response{Allreduce("a"), {1, 2, 3}}}},
      {{Of({.name = "b", .op = OpType::kBroadcast, .root = 3})}},
      {{Of({.name = "b", .op = OpType::kBroadcast, .root = 2})}, {2}},
      {{Of({.name = "b", .op = OpType::kAlltoall, .shape = {0}})}, {2}},
      {{Of(Allreduce("a"))}, {0, 1, 2}},
      {{Of({.name = "s", .op = OpType::kSendRecv, .root = 0, .receiver = 3})}},
      {{Of({.name = "s", .op = OpType::kSendRecv, .root = 1, .receiver = 1})}},
      {{Of(Allreduce("a")), Of({.name = "b", .op = OpType::kBarrier})}},
  };
  for (size_t i = 0; i < buckets.size(); ++i) {
    EXPECT_EQ(CodeOf(buckets[i]), absl::StatusCode::kInvalidArgument) << "bucket " << i;
  }
  Reporter fresh({.rank = 0, .world_size = 1});
  EXPECT_EQ(fresh.Apply({}).status().code(), absl::StatusCode::kInvalidArgument) << "settings come first";
}

}  // namespace
}  // namespace ronda
