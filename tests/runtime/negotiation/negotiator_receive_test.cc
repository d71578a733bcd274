// SPDX-License-Identifier: Apache-2.0

// Tests receives that take messages in the order of arrival.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/negotiation/negotiator.h"
#include "tests/runtime/negotiation/negotiator_driver.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr RankId kReceiver = 0;

// Returns the request for message `number` from rank `from` to the receiver, which both ranks submit.
TensorRequest Message(RankId from, int number, absl::string_view tag = "7", Shape shape = {2}) {
  return {.name = absl::StrCat(ChannelName(from, kReceiver, tag), "/", number),
          .op = OpType::kSendRecv,
          .shape = std::move(shape),
          .root = from,
          .receiver = kReceiver};
}

TensorRequest Receive(RankId from, int number, absl::string_view tag = "7", Shape shape = {2}) {
  TensorRequest request = Message(from, number, tag, std::move(shape));
  request.name = absl::StrCat(ReceiveName(kReceiver, tag), "/", number);
  return request;
}

TensorRequest ReceiveFromAny(int number, absl::string_view tag = "7", Shape shape = {2}) {
  return Receive(kReceiver, number, tag, std::move(shape));
}

ReceiveMatch Match(const TensorRequest& receive, const TensorRequest& message) {
  return {.receiver = kReceiver, .receive = receive.name, .message = message.name, .sender = message.root};
}

void ExpectMatch(const ResponseList& list, const TensorRequest& receive, const TensorRequest& message) {
  ASSERT_THAT(list.matches, SizeIs(1));
  EXPECT_EQ(list.matches[0], Match(receive, message));
  ASSERT_THAT(list.buckets, SizeIs(1));
  EXPECT_EQ(Spelled(list, 0).request, message);
}

TEST(NegotiatorReceive, TakesTheFirstMessageThatArrives) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(kReceiver, {ReceiveFromAny(0)});
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.Submit(2, {Message(2, 5)});
  negotiator.Submit(1, {Message(1, 9)});
  ExpectMatch(negotiator.Responses(), ReceiveFromAny(0), Message(2, 5));
  negotiator.Submit(kReceiver, {ReceiveFromAny(1)});
  ExpectMatch(negotiator.Responses(), ReceiveFromAny(1), Message(1, 9));
  EXPECT_FALSE(negotiator->anything_waits());
}

TEST(NegotiatorReceive, TakesMessagesOfOneSenderInTheirOrder) {
  NegotiatorDriver negotiator(2);
  for (int number : {63, 0}) {
    for (RankId rank : {0, 1}) negotiator.Submit(rank, {Message(1, number)});
  }
  negotiator.Responses();
  // A report lists ids in ascending order, so the negotiator must order the messages by their numbers, which start
  // again at 0 after 63.
  negotiator.Receive(1, {.cached = {1, 2}, .requests = {Message(1, 1)}});
  for (int number : {63, 0, 1}) {
    negotiator.Submit(kReceiver, {ReceiveFromAny(number)});
    const ResponseList list = negotiator.Responses();
    ASSERT_THAT(list.matches, SizeIs(1));
    EXPECT_EQ(list.matches[0], Match(ReceiveFromAny(number), Message(1, number)));
    EXPECT_THAT(list.buckets, SizeIs(1));
  }
}

TEST(NegotiatorReceive, LeavesAMessageToAReceiveThatHasNamedIt) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(kReceiver, {Message(1, 3), ReceiveFromAny(0)});
  negotiator.Submit(1, {Message(1, 3)});
  EXPECT_THAT(negotiator.Responses().matches, IsEmpty());
  negotiator.Submit(1, {Message(1, 4)});
  ExpectMatch(negotiator.Responses(), ReceiveFromAny(0), Message(1, 4));
}

TEST(NegotiatorReceive, OfOneSenderWaitsBehindOneOfAny) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(kReceiver, {ReceiveFromAny(0), Receive(1, 1)});
  negotiator.Submit(1, {Message(1, 0)});
  ExpectMatch(negotiator.Responses(), ReceiveFromAny(0), Message(1, 0));
  negotiator.Submit(2, {Message(2, 0)});
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.Submit(1, {Message(1, 1)});
  ExpectMatch(negotiator.Responses(), Receive(1, 1), Message(1, 1));
}

TEST(NegotiatorReceive, IsOfOneTagAndOneProcessSet) {
  NegotiatorDriver negotiator(3);
  negotiator.SubmitAll({0, 1, 2}, AddSet({0, 1}));
  negotiator.Responses();
  negotiator.Submit(kReceiver, {ReceiveFromAny(0), OnSet(1, ReceiveFromAny(0, "8"))});
  negotiator.Submit(1, {Message(1, 0, "8"), OnSet(1, Message(1, 0, "7"))});
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.Submit(1, {OnSet(1, Message(1, 0, "8"))});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.matches, SizeIs(1));
  EXPECT_EQ(list.matches[0].process_set, 1u);
}

TEST(NegotiatorReceive, OfAnotherSizeFailsOnBoth) {
  NegotiatorDriver negotiator(2);
  negotiator.Submit(kReceiver, {ReceiveFromAny(0, "7", {3})});
  negotiator.Submit(1, {Message(1, 0)});
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.matches, SizeIs(1)) << "the error has the message's name";
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_EQ(list.errors[0].name, Message(1, 0).name);
  EXPECT_EQ(list.errors[0].ranks, (std::vector<RankId>{0, 1}));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("rank 0 says shape [3], rank 1 says shape [2]"));
  EXPECT_FALSE(negotiator->anything_waits());
}

TEST(NegotiatorReceive, WaitsForRequestsThatARankHasToRepeat) {
  NegotiatorDriver negotiator(2, 1);
  for (RankId rank : {0, 1}) negotiator.Submit(rank, {Message(1, 0)});
  for (RankId rank : {0, 1}) negotiator.Submit(rank, {Message(1, 1)});
  negotiator.Responses();
  // The sender's report has an id that has been evicted, and a request for another message.
  negotiator.Receive(1, {.cached = {1}, .requests = {Message(1, 1)}});
  negotiator.Submit(kReceiver, {ReceiveFromAny(0)});
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.Receive(1, {.repeated = {{1, Message(1, 0)}}});
  ExpectMatch(negotiator.Responses(), ReceiveFromAny(0), Message(1, 0));
}

TEST(NegotiatorReceive, NamesAllThatCouldSendAtTheDeadline) {
  NegotiatorDriver negotiator(3);
  TensorRequest receive = ReceiveFromAny(0);
  receive.limits = WaitLimits{.warning = absl::Seconds(9), .deadline = absl::Seconds(1)};
  negotiator.Submit(kReceiver, {receive});
  StallInspector inspector({});
  const auto findings = inspector.Inspect(negotiator->waiting(), kStart + absl::Seconds(2));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].text, AllOf(HasSubstr("the message from any rank with tag 7 (send/recv of float32 [2])"),
                                      HasSubstr("missing: rank 1"), HasSubstr("rank 2")));
  negotiator->Fail(findings[0].tensor, absl::DeadlineExceededError(findings[0].text));
  EXPECT_EQ(negotiator.Responses().errors.at(0).ranks, std::vector<RankId>{kReceiver});
  // The message comes too late for the first receive, so the next one takes it.
  negotiator.Submit(1, {Message(1, 0)});
  EXPECT_TRUE(negotiator.Responses().empty());
  negotiator.Submit(kReceiver, {ReceiveFromAny(0)});
  ExpectMatch(negotiator.Responses(), ReceiveFromAny(0), Message(1, 0));
}

TEST(NegotiatorReceive, FailsWhenAllOthersHaveShutDown) {
  NegotiatorDriver negotiator(3);
  negotiator.Submit(kReceiver, {ReceiveFromAny(0)});
  negotiator.Receive(1, ShuttingDown());
  EXPECT_TRUE(negotiator.Responses().empty()) << "rank 2 may send";
  negotiator.Receive(2, ShuttingDown());
  const ResponseList list = negotiator.Responses();
  ASSERT_THAT(list.errors, SizeIs(1));
  EXPECT_THAT(std::string(list.errors[0].status.message()), HasSubstr("will not submit the message from any rank"));
}

TEST(NegotiatorReceive, OfAnotherRanksNameIsRefused) {
  NegotiatorDriver negotiator(3);
  EXPECT_FALSE(negotiator->Add(1, Report({ReceiveFromAny(0)}), kStart).ok());
  EXPECT_FALSE(negotiator->Add(1, Report({Receive(1, 0)}), kStart).ok());
}

TEST(MessageName, HasATagAndANumber) {
  for (const std::string& name : {ChannelName(11, 2, "33") + "/63", ReceiveName(2, "33") + "/63"}) {
    EXPECT_EQ(PartsOfMessageName(name).tag, "33") << name;
    EXPECT_EQ(PartsOfMessageName(name).number, 63u) << name;
  }
  for (const char* const odd : {"", "/", "a", "a/1", "/1", "a/b/c"}) EXPECT_EQ(PartsOfMessageName(odd).number, 0u);
}

}  // namespace
}  // namespace ronda
