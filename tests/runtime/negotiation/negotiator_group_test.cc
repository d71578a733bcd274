// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TensorRequest Member(const std::string& name, Shape shape = {3}) {
  return InGroup("g", 2, Allreduce(name, std::move(shape)));
}

TEST(Group, RunsWhenAllItsTensorsHaveConcluded) {
  NegotiatorDriver negotiator(2);
  negotiator.SubmitAll({0, 1}, Member("a"));
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.SubmitAll({0, 1}, Allreduce("alone"));
  negotiator.SubmitAll({0, 1}, Member("b"));
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(3));
  EXPECT_EQ(Spelled(list, 0).request.name, "alone");
  EXPECT_EQ(Spelled(list, 1).request.name, "a");
  EXPECT_EQ(Spelled(list, 2).request.name, "b");
}

TEST(Group, OneCulpritFailsAllWithItsName) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(0, {Member("a"), Member("b")});
  negotiator.Submit(1, {Member("a"), Member("b", {4})});
  const ResponseList list = negotiator.Responses();
  EXPECT_THAT(list.buckets, IsEmpty());
  ASSERT_THAT(list.errors, SizeIs(2));
  for (const TensorError& error : list.errors) {
    EXPECT_THAT(error.ranks, ElementsAre(0, 1));
    EXPECT_THAT(std::string(error.status.message()),
                HasSubstr("no tensor of group 'g' is carried out, because of tensor 'b': ranks disagree"));
  }
}

TEST(Group, FailureOfAWaitingTensorFailsTheHeldOnesToo) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(0, {Member("a"), Member("b")});
  negotiator.Submit(1, {Member("a")});
  negotiator->Fail({0, "b"}, absl::DeadlineExceededError("b is late"));
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(2));
  EXPECT_THAT(list.errors, Each(Field(&TensorError::status,
                                      absl::DeadlineExceededError("no tensor of group 'g' is carried out, because of "
                                                                  "tensor 'b': b is late"))));
  EXPECT_THAT(list.errors[0].ranks, ElementsAre(0, 1)) << "'a'";
  EXPECT_THAT(list.errors[1].ranks, ElementsAre(0)) << "'b'";
  EXPECT_FALSE(negotiator->anything_waits());
}

TEST(Group, DepartureFailsTheWholeGroup) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(0, {Member("a"), Member("b")});
  negotiator.Submit(2, {Member("a"), Member("b")});
  negotiator.Receive(1, ShuttingDown());
  EXPECT_THAT(negotiator.Responses().errors, SizeIs(2));
}

TEST(Group, SizeThatIsNotItsNumberOfTensorsIsAnError) {
  NegotiatorDriver negotiator(1);
  negotiator.Submit(0, {Member("a"), Member("b"), Member("c")});
  ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(3));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("it has 3 tensors, and not 2"));
  negotiator.Submit(0, {Member("a"), InGroup("g", 3, Allreduce("b"))});
  list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(2));
  EXPECT_THAT(std::string(list.errors[0].status.message()),
              HasSubstr("tensor 'a' is one of 2 tensors, and tensor 'b' is one of 3"));
}

TEST(Group, SameNameInTwoProcessSetsIsTwoGroups) {
  NegotiatorDriver negotiator(1);
  negotiator.Submit(0, {AddSet({0})});
  negotiator.Responses();
  negotiator.Submit(0, {Member("a"), OnSet(1, Member("a"))});
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.Submit(0, {Member("b"), OnSet(1, Member("b"))});
  EXPECT_THAT(negotiator.Responses().buckets, SizeIs(4));
}

TEST(Group, SecondTimeIsAnsweredById) {
  NegotiatorDriver negotiator(2);
  for (RankId rank : {0, 1}) negotiator.Submit(rank, {Member("a"), Member("b")});
  negotiator.Responses();
  for (RankId rank : {0, 1}) negotiator.Receive(rank, {.cached = {1, 2}});
  const ResponseList list = negotiator.Responses();
  EXPECT_EQ(IdOf(list, 0), 1u);
  EXPECT_EQ(IdOf(list, 1), 2u);
}

TEST(Group, TensorWhoseEntryIsEvictedWhileItIsHeldIsSpelledOut) {
  NegotiatorDriver negotiator(2, 2);
  for (RankId rank : {0, 1}) negotiator.Submit(rank, {Member("a"), Member("b")});
  negotiator.Responses();
  for (RankId rank : {0, 1}) negotiator.Receive(rank, ReportById(1));
  negotiator.SubmitAll({0, 1}, Allreduce("x"));
  negotiator.SubmitAll({0, 1}, Allreduce("y"));
  negotiator.Responses();
  negotiator.SubmitAll({0, 1}, Member("b"));
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(2));
  EXPECT_EQ(Spelled(list, 0).request, Member("a"));
}

TEST(Group, JoinBetweenItsTensorsKeepsEachOnesRanks) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(1, {Member("a")});
  negotiator.Submit(0, {Member("a")});
  negotiator.Submit(1, {JoinOf()});
  negotiator.Submit(0, {Member("b"), JoinOf()});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.buckets, SizeIs(3));
  EXPECT_THAT(list.buckets[0].joined, IsEmpty());
  EXPECT_THAT(list.buckets[1].joined, ElementsAre(1));
  EXPECT_EQ(Spelled(list, 2).request.op, OpType::kJoin);
}

// All tensors of the group fail, whichever rank submits first. If only one of them failed, the others would wait for a
// rank that never submits them.
TEST(Group, TensorThatIsInAGroupOnSomeRanksOnlyFailsTheGroup) {
  const TensorRequest alone = Allreduce("g.1");
  for (const bool group_comes_first : {true, false}) {
    NegotiatorDriver negotiator(2);
    const auto submit_group = [&] {
      negotiator.Submit(0,
                        {InGroup("g", 3, Allreduce("g.0")), InGroup("g", 3, alone), InGroup("g", 3, Allreduce("g.2"))});
    };
    if (group_comes_first) submit_group();
    negotiator.Submit(1, {alone});
    if (!group_comes_first) submit_group();
    const ResponseList list = negotiator.Responses();
    EXPECT_THAT(list.buckets, IsEmpty());
    ASSERT_THAT(list.errors, SizeIs(3));
    for (const TensorError& error : list.errors) {
      EXPECT_THAT(std::string(error.status.message()), HasSubstr("says group"));
    }
    EXPECT_FALSE(negotiator->anything_waits());
  }
}

}  // namespace
}  // namespace ronda
