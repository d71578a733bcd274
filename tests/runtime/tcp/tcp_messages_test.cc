#include "runtime/tcp/tcp_messages.h"

#include <sys/socket.h>

#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using Request = PointToPoint::Request;

// Two ranks whose connection is a pair of sockets with small buffers, so that little data does not fit.
class TcpMessagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    for (RankId rank = 0; rank < 2; ++rank) {
      const int bytes = 4096;
      ASSERT_EQ(setsockopt(ends[rank], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
      std::vector<UniqueFd> sockets(2);
      sockets[static_cast<size_t>(1 - rank)] = UniqueFd(ends[rank]);
      ranks_[rank] = std::make_unique<TcpMessages>(rank, std::move(sockets));
    }
  }

  // As often as both need to complete, whichever comes first.
  void Complete(Request& sent, Request& received) {
    bool is_sent = false, is_received = false;
    while (!is_sent || !is_received) {
      if (!is_sent) is_sent = Test(0, sent);
      if (!is_received) is_received = Test(1, received);
    }
  }

  bool Test(RankId rank, Request& request) {
    const absl::StatusOr<bool> is_complete = ranks_[rank]->Test({&request, 1});
    EXPECT_TRUE(is_complete.ok()) << is_complete.status();
    return !is_complete.ok() || *is_complete;
  }

  std::unique_ptr<TcpMessages> ranks_[2];
};

TEST_F(TcpMessagesTest, SmallMessageIsSentBeforeItIsAskedFor) {
  const std::string text = "hello";
  Request sent = *ranks_[0]->Send(text.data(), text.size(), 1);
  EXPECT_TRUE(Test(0, sent));
  std::string room(5, '\0');
  Request received = *ranks_[1]->Receive(room.data(), room.size(), 0);
  EXPECT_TRUE(Test(1, received));
  EXPECT_EQ(room, text);
}

TEST_F(TcpMessagesTest, LongMessageWaitsUntilItIsAskedFor) {
  std::vector<int> data(100'000), room(data.size());
  std::iota(data.begin(), data.end(), 0);
  Request sent = *ranks_[0]->Send(data.data(), data.size() * sizeof(int), 1);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Test(0, sent));
  Request received = *ranks_[1]->Receive(room.data(), room.size() * sizeof(int), 0);
  Complete(sent, received);
  EXPECT_EQ(room, data);
}

TEST_F(TcpMessagesTest, MessagesArriveInTheirOrderBothWaysAtOnce) {
  constexpr int kMessages = 100;
  std::vector<std::vector<char>> data, rooms;
  std::vector<Request> requests[2];
  for (RankId rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < kMessages; ++i) {
      data.emplace_back(static_cast<size_t>(i * 37 % 5000), static_cast<char>(i + rank));
      rooms.emplace_back(data.back().size());
      requests[rank].push_back(*ranks_[rank]->Send(data.back().data(), data.back().size(), 1 - rank));
      requests[1 - rank].push_back(*ranks_[1 - rank]->Receive(rooms.back().data(), rooms.back().size(), rank));
    }
  }
  for (bool is_done = false; !is_done;) {
    is_done = *ranks_[0]->Test(absl::MakeSpan(requests[0]));
    is_done = *ranks_[1]->Test(absl::MakeSpan(requests[1])) && is_done;
  }
  EXPECT_EQ(rooms, data);
}

TEST_F(TcpMessagesTest, WhatAPeerHasSentBeforeItsEndIsReceived) {
  const std::string text = "last words";
  ASSERT_TRUE(ranks_[0]->Send(text.data(), text.size(), 1).ok());
  ranks_[0].reset();
  std::string room(text.size(), '\0');
  Request received = *ranks_[1]->Receive(room.data(), room.size(), 0);
  EXPECT_TRUE(Test(1, received));
  EXPECT_EQ(room, text);
}

TEST_F(TcpMessagesTest, PeerThatEndsInTheMiddleOfAMessageFailsItsTransfers) {
  std::vector<char> data(100'000), room(data.size());
  ASSERT_TRUE(ranks_[0]->Send(data.data(), data.size(), 1).ok());
  Request received = *ranks_[1]->Receive(room.data(), room.size(), 0);
  EXPECT_FALSE(Test(1, received));
  ranks_[0].reset();
  absl::StatusOr<bool> is_complete = false;
  while (is_complete.ok() && !*is_complete) is_complete = ranks_[1]->Test({&received, 1});
  EXPECT_EQ(is_complete.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(is_complete.status().message()), HasSubstr("the connection has broken"));
  EXPECT_EQ(ranks_[1]->Send(data.data(), data.size(), 0).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TcpMessagesTest, MessageToAPeerThatIsGoneFailsAndDoesNotEndTheProcess) {
  ranks_[0].reset();
  const std::string text = "anybody there?";
  absl::StatusOr<Request> sent = ranks_[1]->Send(text.data(), text.size(), 0);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(ranks_[1]->Test({&*sent, 1}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TcpMessagesTest, MessageOfAnotherLengthIsAnError) {
  const std::string text = "four";
  std::string room(5, '\0');
  ASSERT_TRUE(ranks_[0]->Send(text.data(), text.size(), 1).ok());
  Request received = *ranks_[1]->Receive(room.data(), room.size(), 0);
  EXPECT_EQ(ranks_[1]->Test({&received, 1}).status().code(), absl::StatusCode::kInternal);
}

TEST_F(TcpMessagesTest, RestEndsWhenAMessageArrives) {
  char byte = 0;
  Request received = *ranks_[1]->Receive(&byte, 1, 0);
  EXPECT_FALSE(Test(1, received));
  const absl::Duration start = MonotonicTime();
  std::thread sender([&] { EXPECT_TRUE(ranks_[0]->Send("x", 1, 1).ok()); });
  while (!Test(1, received)) ranks_[1]->Rest(absl::Minutes(10));
  EXPECT_LT(MonotonicTime() - start, absl::Minutes(9));
  sender.join();
  EXPECT_EQ(byte, 'x');
}

// More connections than are tried one by one.
TEST(ManyTcpMessagesTest, RankExchangesWithManyOthers) {
  constexpr RankId kPeers = 20;
  std::vector<UniqueFd> sockets(1);
  std::vector<std::unique_ptr<TcpMessages>> others;
  for (RankId peer = 1; peer <= kPeers; ++peer) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    sockets.emplace_back(ends[0]);
    std::vector<UniqueFd> back(kPeers + 1);
    back[0] = UniqueFd(ends[1]);
    others.push_back(std::make_unique<TcpMessages>(peer, std::move(back)));
  }
  TcpMessages hub(0, std::move(sockets));
  std::vector<int> rooms(kPeers + 1, -1);
  std::vector<Request> requests;
  for (RankId peer = 1; peer <= kPeers; ++peer) requests.push_back(*hub.Receive(&rooms[peer], sizeof(int), peer));
  for (const std::unique_ptr<TcpMessages>& other : others) {
    EXPECT_FALSE(*hub.Test(absl::MakeSpan(requests)));
    const int number = other->rank();
    EXPECT_TRUE(other->Send(&number, sizeof(number), 0).ok());
  }
  while (!*hub.Test(absl::MakeSpan(requests))) continue;
  for (RankId peer = 1; peer <= kPeers; ++peer) EXPECT_EQ(rooms[peer], peer);
}

}  // namespace
}  // namespace ronda
