// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/message_transports.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronda::testing {
namespace {

using Request = PointToPoint::Request;

// A message must arrive within this number of calls to Test().
constexpr int kCalls = 20;

bool EndsWithin(PointToPoint& end, std::vector<Request> requests, int calls) {
  for (int i = 0; i < calls; ++i) {
    if (*end.Test(absl::MakeSpan(requests))) return true;
  }
  return false;
}

TEST(FakeMessagesTest, MessagesOfOneSenderArriveInTheirOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto ends = ConnectFakeMessages(2, seed);
    std::string first = "first";
    std::string second = "other";
    const Request sent[] = {*ends[0]->Send(first.data(), first.size(), 1), *ends[0]->Send(second.data(), 5, 1)};
    std::string to_first(5, '?');
    std::string to_second(5, '?');
    const Request wanted[] = {*ends[1]->Receive(to_first.data(), 5, 0), *ends[1]->Receive(to_second.data(), 5, 0)};
    EXPECT_TRUE(EndsWithin(*ends[0], {sent[0], sent[1]}, kCalls));
    EXPECT_TRUE(EndsWithin(*ends[1], {wanted[1], wanted[0]}, kCalls));
    EXPECT_EQ(to_first, "first");
    EXPECT_EQ(to_second, "other");
  }
}

TEST(FakeMessagesTest, SomeSendsWaitForTheirReceiverAndSomeDoNot) {
  int ended_alone = 0;
  constexpr int kSeeds = 40;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto ends = ConnectFakeMessages(2, seed);
    ended_alone += EndsWithin(*ends[0], {*ends[0]->Send("x", 1, 1)}, kCalls) ? 1 : 0;
  }
  EXPECT_GT(ended_alone, 0);
  EXPECT_LT(ended_alone, kSeeds);
}

TEST(FakeMessagesTest, ReceiverWaitsForItsMessage) {
  const auto ends = ConnectFakeMessages(2, 1);
  char byte = '?';
  EXPECT_FALSE(EndsWithin(*ends[1], {*ends[1]->Receive(&byte, 1, 0)}, kCalls));
  EXPECT_EQ(byte, '?');
}

TEST(FakeMessagesTest, EmptyMessagesArriveToo) {
  const auto ends = ConnectFakeMessages(3, 1);
  const Request wanted = *ends[2]->Receive(nullptr, 0, 1);
  EXPECT_FALSE(EndsWithin(*ends[2], {wanted}, kCalls));
  EXPECT_TRUE(EndsWithin(*ends[1], {*ends[1]->Send(nullptr, 0, 2)}, kCalls));
  EXPECT_TRUE(EndsWithin(*ends[2], {wanted}, kCalls));
}

TEST(FakeMessagesTest, AnotherSizeThanTheReceiverNamesIsAnError) {
  const auto ends = ConnectFakeMessages(2, 1);
  char bytes[2] = {};
  Request wanted[] = {*ends[1]->Receive(bytes, 2, 0)};
  ASSERT_TRUE(ends[0]->Send(bytes, 1, 1).ok());
  EXPECT_EQ(ends[1]->Test(absl::MakeSpan(wanted)).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace ronda::testing
