// SPDX-License-Identifier: Apache-2.0

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/tcp/tcp_messages.h"
#include "tests/testing/refuse_call.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

// Removes up to `most` bytes from a queue of outgoing messages.
std::string Take(TransferQueue& queue, size_t most, size_t vectors = 16) {
  std::vector<iovec> filled(vectors);
  filled.resize(queue.Fill(absl::MakeSpan(filled)));
  std::string stream;
  for (const iovec& vector : filled) stream.append(static_cast<const char*>(vector.iov_base), vector.iov_len);
  stream.resize(std::min(stream.size(), most));
  EXPECT_EQ(queue.Advance(stream.size()), absl::OkStatus());
  return stream;
}

// Moves bytes from `stream` to a queue of incoming messages, until the queue wants no more.
absl::Status Give(TransferQueue& queue, std::string& stream, size_t vectors = 16) {
  std::vector<iovec> filled(vectors);
  filled.resize(queue.Fill(absl::MakeSpan(filled)));
  size_t given = 0;
  for (const iovec& vector : filled) {
    const size_t bytes = std::min(vector.iov_len, stream.size() - given);
    std::memcpy(vector.iov_base, stream.data() + given, bytes);
    given += bytes;
  }
  stream.erase(0, given);
  return queue.Advance(given);
}

TEST(TransferQueueTest, MessageIsItsLengthAndItsContent) {
  TransferQueue queue;
  std::string text = "abc";
  queue.Add(text.data(), text.size());
  const std::string stream = Take(queue, 100);
  uint64_t length = 0;
  ASSERT_EQ(stream.size(), sizeof(length) + 3);
  std::memcpy(&length, stream.data(), sizeof(length));
  EXPECT_EQ(length, 3u);
  EXPECT_EQ(stream.substr(sizeof(length)), "abc");
  EXPECT_TRUE(queue.empty());
}

TEST(TransferQueueTest, MessageIsCompleteWithItsLastByte) {
  TransferQueue queue;
  std::string text = "abc";
  const TransferQueue::Number number = queue.Add(text.data(), text.size());
  Take(queue, sizeof(uint64_t) + 2);
  EXPECT_FALSE(queue.IsComplete(number));
  Take(queue, 1);
  EXPECT_TRUE(queue.IsComplete(number));
}

TEST(TransferQueueTest, EmptyMessageIsCompleteWithItsLength) {
  TransferQueue queue;
  const TransferQueue::Number number = queue.Add(nullptr, 0);
  Take(queue, sizeof(uint64_t) - 1);
  EXPECT_FALSE(queue.IsComplete(number));
  Take(queue, 1);
  EXPECT_TRUE(queue.IsComplete(number));
}

TEST(TransferQueueTest, MessageOfAnotherLengthIsAnErrorThatNamesBoth) {
  TransferQueue sends, receives;
  std::string text = "abc", room(5, '\0');
  sends.Add(text.data(), text.size());
  receives.Add(room.data(), room.size());
  std::string stream = Take(sends, 100);
  const absl::Status status = Give(receives, stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a message of 3 bytes has come where one of 5 is expected"));
}

TEST(TransferQueueTest, LongerMessageThanAskedForWritesNothingBeyond) {
  TransferQueue sends, receives;
  std::string text = "abcdef", room = "......";
  sends.Add(text.data(), text.size());
  receives.Add(room.data(), 2);
  std::string stream = Take(sends, 100);
  EXPECT_FALSE(Give(receives, stream).ok());
  EXPECT_EQ(room.substr(2), "....");
}

// A stream carries random messages. Both sides read and write it in pieces of random size, and some messages are added
// late.
TEST(TransferQueueTest, AnyCutsOfTheStreamLeaveMessagesWhole) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  constexpr size_t kMessages = 2000;
  std::deque<std::string> sent, received;
  TransferQueue sends, receives;
  std::string stream;
  while (sent.size() < kMessages || !sends.empty() || !receives.empty()) {
    if (sent.size() < kMessages && below(2) == 0) {
      sent.emplace_back(below(3) == 0 ? 0 : below(200), static_cast<char>('a' + below(26)));
      received.emplace_back(sent.back().size(), '\0');
      EXPECT_EQ(sends.Add(sent.back().data(), sent.back().size()), sent.size() - 1);
      EXPECT_EQ(receives.Add(received.back().data(), received.back().size()), received.size() - 1);
    }
    stream += Take(sends, below(300), 1 + below(16));
    std::string arrived = stream.substr(0, below(300));
    stream.erase(0, arrived.size());
    ASSERT_EQ(Give(receives, arrived, 1 + below(16)), absl::OkStatus());
    stream.insert(0, arrived);
  }
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(stream.empty());
}

using ::testing::HasSubstr;
using Request = PointToPoint::Request;

// Two ranks that are connected by a pair of sockets, whose buffers are too small even for little data.
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

  // Calls Test for two requests until both are complete, in either order.
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

TEST_F(TcpMessagesTest, DataSentBeforeAPeersEndIsReceived) {
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

// A peer's last messages contain the reason why it has left.
TEST_F(TcpMessagesTest, MessagesThatHadArrivedAreReceivedAfterASendHasFailed) {
  const std::string text = "last words";
  ASSERT_TRUE(ranks_[0]->Send(text.data(), text.size(), 1).ok());
  ranks_[0].reset();
  absl::StatusOr<Request> sent = ranks_[1]->Send("x", 1, 0);
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(ranks_[1]->Test({&*sent, 1}).status().code(), absl::StatusCode::kUnavailable);
  std::string room(text.size(), '\0');
  Request received = *ranks_[1]->Receive(room.data(), room.size(), 0);
  EXPECT_TRUE(Test(1, received));
  EXPECT_EQ(room, text);
}

TEST_F(TcpMessagesTest, ProgressMovesAndLookOnlyLooks) {
  char byte = 0;
  Request received = *ranks_[1]->Receive(&byte, 1, 0);
  ASSERT_TRUE(ranks_[0]->Send("x", 1, 1).ok());
  EXPECT_FALSE(*ranks_[1]->Look({&received, 1}));
  ranks_[1]->Progress();
  EXPECT_TRUE(*ranks_[1]->Look({&received, 1}));
  EXPECT_EQ(byte, 'x');
}

TEST_F(TcpMessagesTest, DescriptorIsReadyWhenAMessageHasCome) {
  pollfd descriptor = {.fd = ranks_[1]->DescriptorOf(0), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&descriptor, 1, 0), 0);
  ASSERT_TRUE(ranks_[0]->Send("x", 1, 1).ok());
  EXPECT_EQ(poll(&descriptor, 1, -1), 1);
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

// If ppoll() fails, so must the transfers. Otherwise, a collective would alternate between sleeping and polling
// forever.
TEST_F(TcpMessagesTest, RefusedCallFailsTheTransfersThatWaitForIt) {
  char byte = 0;
  Request received = *ranks_[1]->Receive(&byte, 1, 0);
  EXPECT_EXIT(
      {
        testing::RefuseCall(SYS_ppoll, EPERM);
        ranks_[1]->Rest(absl::InfiniteDuration());
        std::cerr << ranks_[1]->Test({&received, 1}).status();
        _exit(7);
      },
      ::testing::ExitedWithCode(7), "the system refuses ppoll");
}

// There are so many connections that TcpMessages does not try each one, but asks the kernel which ones can move data.
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
