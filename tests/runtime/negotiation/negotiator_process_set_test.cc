// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Three ranks with the process sets 1 (ranks 0 and 2) and 2 (ranks 1 and 2).
class ProcessSets : public ::testing::Test {
 protected:
  void SetUp() override {
    for (RankId rank : {0, 1, 2}) negotiator_.Submit(rank, {AddSet({0, 2}, "one"), AddSet({1, 2}, "two")});
    const ResponseList list = negotiator_.Responses();
    ASSERT_THAT(list.buckets, SizeIs(2));
    EXPECT_EQ(Spelled(list, 0).request.subject, 1u);
    EXPECT_EQ(Spelled(list, 1).request.subject, 2u);
  }

  void Remove(ProcessSetId set) { negotiator_.SubmitAll({0, 1, 2}, RemoveSet(set)); }

  NegotiatorDriver negotiator_{3};
};

TEST_F(ProcessSets, NeedTheirMembersAlone) {
  negotiator_.SubmitAll({2, 0}, OnSet(1, Allreduce("a")));
  EXPECT_EQ(Spelled(negotiator_.Responses(), 0).request.process_set, 1u);
}

TEST_F(ProcessSets, SameNameIsInFlightInSeveralAtOnce) {
  negotiator_.Submit(2, {Allreduce("a"), OnSet(1, Allreduce("a", {5})), OnSet(2, Allreduce("a", {6}))});
  negotiator_.Submit(1, {OnSet(2, Allreduce("a", {6})), Allreduce("a")});
  negotiator_.Submit(0, {OnSet(1, Allreduce("a", {5}))});
  ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.buckets, SizeIs(2));
  EXPECT_EQ(Spelled(list, 0).request, OnSet(2, Allreduce("a", {6})));
  EXPECT_EQ(Spelled(list, 1).request, OnSet(1, Allreduce("a", {5})));
  negotiator_.Submit(0, {Allreduce("a")});
  EXPECT_EQ(Spelled(negotiator_.Responses(), 0).request, Allreduce("a"));
}

TEST_F(ProcessSets, FirstDimensionsAreInTheOrderOfTheSet) {
  for (RankId rank : {2, 0}) {
    negotiator_.Submit(rank, {OnSet(1, {.name = "g", .op = OpType::kAllgather, .shape = {10 + rank}})});
  }
  EXPECT_THAT(Spelled(negotiator_.Responses(), 0).first_dims, ElementsAre(10, 12));
}

TEST_F(ProcessSets, ErrorsSayWhichSet) {
  negotiator_.Submit(0, {OnSet(1, Allreduce("a", {1}))});
  negotiator_.Submit(2, {OnSet(1, Allreduce("a", {2}))});
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].process_set, 1u);
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("tensor 'a' of process set 1: rank 0 says"));
}

TEST_F(ProcessSets, DepartureOfARankOutsideDoesNotMatter) {
  negotiator_.Submit(0, {OnSet(1, Allreduce("a"))});
  negotiator_.Receive(1, ShuttingDown());
  negotiator_.Submit(2, {OnSet(1, Allreduce("a"))});
  EXPECT_THAT(negotiator_.Responses().buckets, SizeIs(1));
}

TEST_F(ProcessSets, SetOfTheSameRanksIsAnother) {
  negotiator_.SubmitAll({0, 1, 2}, AddSet({0, 2}));
  EXPECT_EQ(Spelled(negotiator_.Responses(), 0).request.subject, 3u);
  negotiator_.Submit(0, {OnSet(1, Allreduce("a"))});
  negotiator_.Submit(2, {OnSet(3, Allreduce("a"))});
  EXPECT_TRUE(negotiator_.Responses().empty());
}

TEST_F(ProcessSets, RemovalFailsWhatWaitsInTheSetAndWhatComesLater) {
  negotiator_.Submit(0, {OnSet(1, Allreduce("a")), OnSet(1, InGroup("g", 2, Allreduce("b")))});
  negotiator_.Submit(2, {OnSet(1, InGroup("g", 2, Allreduce("b"))), OnSet(1, JoinOf())});
  negotiator_.Submit(1, {OnSet(2, Allreduce("elsewhere"))});
  Remove(1);
  negotiator_.Submit(2, {OnSet(1, Allreduce("late"))});
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.buckets, SizeIs(2)) << "'a', for which rank 2 had joined, and the removal";
  ASSERT_THAT(list.errors, SizeIs(3));
  for (const TensorError& error : list.errors) {
    EXPECT_EQ(error.process_set, 1u);
    EXPECT_EQ(error.status, absl::FailedPreconditionError("process set 1 was removed"));
  }
  EXPECT_EQ(list.errors[0].name, "b");
  EXPECT_EQ(list.errors[1].name, kJoinName);
  EXPECT_EQ(list.errors[2].name, "late");
  EXPECT_TRUE(negotiator_->anything_waits());
}

TEST_F(ProcessSets, ReportByIdOfARemovedSetIsAnswered) {
  negotiator_.SubmitAll({0, 2}, OnSet(1, Allreduce("a")));
  negotiator_.Responses();
  Remove(1);
  negotiator_.Receive(0, ReportById(1));  // the removal is decided, but not yet sent
  ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0));
  negotiator_.Receive(2, ReportById(1));  // the removal is sent, but not yet received
  EXPECT_TRUE(negotiator_.Responses().empty());
  negotiator_.Receive(2, {.repeated = {{1, OnSet(1, Allreduce("a"))}}});
  list = negotiator_.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(2));
}

TEST_F(ProcessSets, IdIsNotUsedAgain) {
  Remove(2);
  negotiator_.SubmitAll({0, 1, 2}, AddSet({0}));
  const ResponseList list = negotiator_.Responses();
  EXPECT_EQ(Spelled(list, 1).request.subject, 3u);
}

TEST_F(ProcessSets, RemovalOfWhatCannotBeRemovedIsAnErrorAndTheJobGoesOn) {
  Remove(0);
  Remove(7);
  Remove(1);
  Remove(1);
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.errors, SizeIs(3));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("holds all ranks of the job"));
  EXPECT_THAT(std::string(list.errors[1].status.message()), HasSubstr("process set 7 does not exist"));
  EXPECT_THAT(std::string(list.errors[2].status.message()), HasSubstr("process set 1 was removed before"));
  EXPECT_THAT(list.buckets, SizeIs(1));
}

TensorRequest CreateSet(std::vector<RankId> members, const std::string& name = "create") {
  return {.name = name, .op = OpType::kCreateProcessSet, .members = std::move(members)};
}

TEST_F(ProcessSets, MembersAloneCreateOne) {
  negotiator_.Submit(1, {Allreduce("training")});
  negotiator_.Submit(2, {CreateSet({0, 2})});
  EXPECT_TRUE(negotiator_.Responses().empty());
  negotiator_.Submit(0, {CreateSet({0, 2})});
  EXPECT_EQ(Spelled(negotiator_.Responses(), 0).request.subject, 3u);
  negotiator_.SubmitAll({0, 2}, OnSet(3, Allreduce("a")));
  EXPECT_EQ(Spelled(negotiator_.Responses(), 0).request.process_set, 3u);
  negotiator_.SubmitAll({0, 2}, Allreduce("training"));
  EXPECT_EQ(Spelled(negotiator_.Responses(), 0).request.name, "training");
}

TEST_F(ProcessSets, SeveralAreCreatedAtOnce) {
  negotiator_.Submit(0, {CreateSet({0, 2}, "x"), CreateSet({0, 2}, "y")});
  negotiator_.Submit(1, {CreateSet({1}, "z")});
  negotiator_.Submit(2, {CreateSet({0, 2}, "y"), CreateSet({0, 2}, "x")});
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.buckets, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Spelled(list, i).request.subject, 3 + i);
  EXPECT_EQ(Spelled(list, 0).request.name, "z");
  EXPECT_EQ(Spelled(list, 1).request.name, "y");
}

TEST_F(ProcessSets, OnlyTheMembersDeparturesMatterToACreation) {
  negotiator_.Receive(1, ShuttingDown());
  negotiator_.SubmitAll({0, 2}, CreateSet({0, 2}));
  EXPECT_THAT(negotiator_.Responses().buckets, SizeIs(1));
  negotiator_.Submit(0, {CreateSet({0, 1, 2})});
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0));
  EXPECT_EQ(list.errors[0].status,
            absl::UnavailableError("rank 1 has shut down and will not submit the process set of ranks 0, 1, 2"));
}

TEST_F(ProcessSets, ACreationNeedsMembersThatHaveNotJoined) {
  negotiator_.Submit(1, {JoinOf()});
  negotiator_.SubmitAll({0, 2}, CreateSet({0, 2}));
  EXPECT_THAT(negotiator_.Responses().buckets, SizeIs(1)) << "rank 1 is not in it";
  negotiator_.SubmitAll({0, 2}, CreateSet({0, 1, 2}));
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("needs rank 1, which has joined"));
}

TEST_F(ProcessSets, MembersRemoveWhatTheyHaveCreated) {
  negotiator_.SubmitAll({0, 2}, CreateSet({0, 2}));
  negotiator_.Responses();
  negotiator_.Submit(0, {OnSet(3, Allreduce("a"))});
  negotiator_.SubmitAll({0, 2}, OnSet(3, RemoveSet(3)));
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.buckets, SizeIs(1));
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].status, absl::FailedPreconditionError("process set 3 was removed"));
}

TEST_F(ProcessSets, ChangesByOthersThanThoseConcernedAreRefused) {
  EXPECT_EQ((*negotiator_).Add(1, Report({CreateSet({0, 2})}), kStart).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*negotiator_).Add(0, Report({CreateSet({0, 3})}), kStart).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*negotiator_).Add(0, Report({OnSet(1, RemoveSet(1))}), kStart).code(), absl::StatusCode::kInvalidArgument)
      << "all ranks have added it";
}

TEST_F(ProcessSets, RemovalRunsAfterWhatWasAgreedOnBefore) {
  negotiator_.SubmitAll({0, 2}, OnSet(1, Allreduce("a")));
  Remove(1);
  const ResponseList list = negotiator_.Responses();
  ASSERT_THAT(list.buckets, SizeIs(2));
  EXPECT_EQ(Spelled(list, 0).request.name, "a");
  EXPECT_THAT(list.errors, IsEmpty());
}

}  // namespace
}  // namespace ronda
